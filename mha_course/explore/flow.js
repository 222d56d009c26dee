// Weights carry values into an output, step by step: scrub, play, drag a value or a score, edit w_o.

import { add, band, between, box, choice, clip, dot, each, ease, follow, frame, goals, handle, leap, make, paces, plain, reset, rule, say, scale, sender, set, show, softmax, thumb, vector, word } from "./shared.js";

const { abs, ceil, floor, max, min, round } = Math;
const ROW = 44; // the height of a token's row: room for a finger
const TOP = 38; // above the rows of a head
const BEAT = 600; // ms: a step of the loop

/** All numbers of one query, with edits; `shown` is "0", "1", "both" or "average". */
export function compute({ query, key, value, w_o, edits, row, shown }) {
  const scale = edits.scale ?? 1 / Math.sqrt(query[0][0].length);
  const heads = query.map((queries, h) => {
    const products = key[h].map((k, j) => edits[`product ${h} ${row} ${j}`] ?? dot(queries[row], k));
    const scores = products.map((product) => product * scale);
    const weights = softmax(scores);
    const values = value[h].map((v, j) => v.map((x, c) => edits[`value ${h} ${j} ${c}`] ?? x));
    const parts = values.map((v, j) => v.map((x) => weights[j] * x));
    return { products, scores, weights, values, parts, output: add(parts) };
  });
  const matrix = w_o.map((line, r) => line.map((x, c) => edits[`w_o ${r} ${c}`] ?? x));
  const average = shown === "average";
  const picked = [...heads.keys()].filter((h) => ["average", "both", String(h)].includes(shown));
  const concat = heads.flatMap(({ output }, h) => output.map((x) => (picked.includes(h) ? x : 0)));
  const written = average ? [] : matrix.map((line, r) => line.map((x) => concat[r] * x)); // by each number of concat
  const share = average ? 1 / heads.length : 1;
  const output = average ? add(heads.map((head) => head.output)).map((x) => x * share)
    : w_o.length ? add(written) : picked.flatMap((h) => heads[h].output);
  return { edits, scale, heads, matrix, picked, concat, written, share, output };
}

/** What to try: from which step on, with which edit; `start` has no edits. */
const tries = (start) => {
  const some = (test) => ({ picked, heads }) => picked.some((h) => test(heads[h].weights, h));
  return [
    [3, "product", "Drag a score until two tokens have a weight over 0.4 each.", some((row, h) =>
      row.filter((x) => x > 0.4).length === 2 && row.some((x, j) => x > 0.4 && start().heads[h].weights[j] <= 0.4))],
    [3, "scale", "Change the scale until one weight is over 0.95.", some((row) => max(...row) > 0.95)],
    [5, "value", "Drag a value until a number of the sum is nearly 0.", ({ concat }) => concat.some((x, r) => abs(x) < 0.03 && abs(start().concat[r]) > 0.1)],
    [6, "w_o", "With both heads, change w_o until they write to the same column.", ({ heads, written, output }) => output.some((_, c) =>
      heads.every((head, h) => written.some((line, r) => floor(r / head.output.length) === h && abs(line[c]) > 0.01)))],
  ].map(([step, kind, text, met]) => [text, (now) => now.at >= step && Object.keys(now.edits).some((name) => name.startsWith(kind)) && met(now)]);
};

const LOOK = `
.flow {
.picture { position: relative; } svg { max-width: none; } :is(.picture, .wide) { overflow-x: auto; }
text { font-size: 12px; paint-order: stroke; stroke: var(--ground); stroke-width: 3px; font-variant-numeric: tabular-nums; }
.line > span { min-width: 8.5em; } .line { display: flex; flex-wrap: wrap; align-items: center; gap: 0 8px; } .line input { flex: 1 1 220px; min-width: 0; }
input[type=range] { height: 44px; margin: 0; touch-action: pan-y; } :is(.grip, .handle) { position: absolute; } .grip { appearance: none; background: none; pointer-events: none; }
.handle { width: 44px; height: 44px; cursor: ew-resize; touch-action: pan-y; }
${thumb(".grip", "width: 14px; height: 20px; border: solid transparent; border-width: 0 4px; background: var(--accent) padding-box;")}
${thumb(".value", "height: 16px; border: 0; background: var(--value); clip-path: polygon(50% 0, 100% 100%, 0 100%);")}
.now { min-height: 2.8em; font-weight: 600; } .wide input { width: 58px; } .wide :is(th, td) { padding: 2px; }
}`;

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const [tokens, labels, query, key, value, w_o, limits] = ["tokens", "labels", "query", "key", "value", "w_o", "limits"].map(get);
  const [H, n, d] = [value.length, value[0].length, value[0][0].length];
  const send = sender(model, el);
  const { root, speak } = frame(el, "Explorable: weights carry values into an output");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const state = () => ({ query, key, value, w_o, edits: get("edits"), row: get("row"), shown: get("shown") });
  const count = () => (w_o.length && get("shown") !== "average" ? 6 : 5);
  const most = max(0, ...w_o.flat().map(abs)) || 1; // of w_o, for its colours
  let at = get("at"); // how far it is: 2.5 is halfway through the third step
  let goal = at; // where it glides to
  let focus = []; // the head and the token touched last
  let [width, turn] = [343, 0]; // each run has its turn: a later one ends it
  const which = (h) => (H > 1 ? `head ${h}, ` : "");
  const place = (r) => `head ${floor(r / d)} [${r % d}]`; // of a number of concat
  const edit = (name, x, token = focus) => {
    focus = token;
    halt();
    send({ _edits: { ...get("edits"), [name]: Number(x.toFixed(6)) } });
  };

  const input = (type, label, put, more) => make("input", { type, "aria-label": label, onchange: tell, oninput: ({ target }) => put(target.valueAsNumber), ...more });

  // Over the picture: sliders for keys, handles for mouse and finger.
  const factor = (now) => between(1, now.scale, clip(at - 1)); // as shown, from query · key to the score
  const grips = each(H, (h) => each(n, (j) => each(d + 1, (c) => {
    const [min, max, step] = limits[c < d ? 0 : 1];
    const put = (x) => {
      const [name, by] = c < d ? [`value ${h} ${j} ${c}`, 1] : [`product ${h} ${get("row")} ${j}`, factor(compute(state())) || 1];
      edit(name, clip(x / by, min, max), [h, j]);
      grip.value = grip.shown;
    };
    const grip = input("range", "", put, { class: c < d ? "grip value" : "grip" });
    grip.handle = handle(() => {
      grip.focus({ preventScroll: true });
      halt();
      return [grip.shown, get("edits")];
    }, (way, [x]) => put(round((x + way / grip.unit) / step) * step), ([, edits], scrolls) => (scrolls ? send({ _edits: edits }) : tell()));
    return grip;
  })));
  const svg = make("svg", { "aria-hidden": true });

  /** The picture, made anew. */
  function paint(now) {
    const u = each(6, (i) => clip(at - i));
    const kind = at > 1 ? "score" : "query · key";
    const names = 12 + 6.6 * max(...labels.map((label) => label.length));
    const room = ([low, high], by) => 8 + 7.4 * max(...[low, high].map((x) => show(x * by).length)); // for the longest number
    const [score, ribbon, gap] = [max(room(limits[1], max(3, now.scale)), clip(width / 8, 44, 110)), clip(width / 5 - 24, 44, 150), clip(width / 10 - 20, 20, 60)];
    const cell = max(44, room(limits[0], 1), (width - names - score - ribbon - gap - 22) / (d + 1)); // of a value, and of the output
    const xScore = names + d * cell;
    const xRibbon = xScore + score + 4;
    const xNode = xRibbon + ribbon;
    const zero = xNode + 10 + gap + cell / 2; // of the output
    const many = round(1 / now.share); // heads that have one node and one sum
    const step = clip(ROW / d - 30 / n / many, 6, 13); // from one term of a sum to the next
    const block = many * n * step + 30;
    const tall = max(n * ROW, (d * block) / many) + TOP + 20; // room for wide ribbons
    const [[, reach]] = limits;
    const unit = (cell - 14) / 2 / reach;
    const [bands, marks] = [[], []];
    const put = (...nodes) => marks.push(...nodes);
    /** A sum below its terms. */
    const total = (top, y, x, unit, done, name = "") => put(rule(zero, top, y + 14, at > (name ? 5 : 3) ? 1 : 0), box(zero, y, done * x * unit, 12, "currentColor", done),
      word(zero + min(0, x * unit) - 6, y + 10, name + show(x), done, "end"));
    grips.forEach((rows, h) => rows.forEach((row) => row.forEach((grip, c) => { grip.hidden = grip.handle.hidden = !now.picked.includes(h) || (c === d && !at); })));
    let [middle, seat, line, sums] = []; // of the node, the next ribbon in it, the next term of the sums
    const stack = (c) => middle + (c - d / 2) * block;
    now.picked.forEach((h, b) => {
      const { products, scores, weights, values } = now.heads[h];
      const top = b * tall;
      if (b % many === 0) {
        middle = top + (many * tall + TOP) / 2;
        [seat, line, sums] = [middle - ROW, 0.5, each(d, () => 0)];
        put(word(zero, top + 14, "sum", u[4], "middle"));
      }
      const exps = scores.map((score) => Math.exp(score - max(...scores)));
      put(word(0, top + 14, H > 1 ? `head ${h}` : ""), word(names + (d * cell) / 2, top + 14, "▲ value", 1, "middle"),
        word(xScore + score / 2, top + 14, kind === "score" ? kind : "q · k", 1, "middle"), word(xRibbon, top + 14, many > 1 ? "weight / 2" : "weight", u[2]));
      weights.forEach((weight, j) => {
        const [y, part] = [top + TOP + (j + 0.5) * ROW, weight * now.share];
        const thick = max(1, 2 * ROW * part);
        // Softmax: exp first; then divided, to fill the node.
        const grown = max(1, 2 * ROW * now.share * (u[2] < 0.5 ? 2 * u[2] * exps[j] : between(exps[j], weight, 2 * u[2] - 1)));
        const seated = seat + thick / 2;
        bands.push(band(xRibbon, y, grown, xNode, seated, min(grown, thick), "var(--weight)", 0.35 + 0.35 * u[0]));
        put(word(0, y + 4, labels[j]), word(xRibbon, y - 5, show(part), u[2]));
        [...values[j], products[j] * factor(now)].forEach((x, c) => {
          const grip = grips[h][j][c];
          const told = show(c === d && at > 1 ? scores[j] : x); // as the step says, also on the way to it
          const [low, high, by] = c < d ? limits[0] : limits[1].map((x) => x * max(1, factor(now)));
          const [left, long, scaled] = c < d ? [names + c * cell, cell, unit] : [xScore, score, (score - 14) / (high - low)];
          const start = left + 7 - low * scaled;
          const [seen, end] = [c < d ? 1 : u[0], start + clip(x, low, high) * scaled];
          put(rule(start, y + 2, y + 18, seen), box(start, y + 6, end - start, 8, `var(--${c < d ? "value" : "accent"})`, seen), word(left + long / 2, y - 5, told, seen, "middle"));
          Object.assign(grip, { min: low, max: high, step: by, value: x, shown: x, unit: scaled });
          set(grip, { style: `left: ${left}px; width: ${long}px; top: ${y - 12}px`, "aria-label": `${which(h)}${tokens[j]}: ${c === d ? kind : d > 1 ? `value, number ${c}` : "value"}`, "aria-valuetext": told + (c < d || at < 3 ? "" : `, weight ${show(weight)}`) });
          set(grip.handle, { style: `left: ${end - 22}px; top: ${y - 12}px` });
          if (c === d) return;
          // A value shrinks on its way to the node, then goes to its place in the sum.
          const [first, second] = [clip(2 * u[3]), clip(2 * u[3] - 1)];
          const goal = stack(c) + line * step;
          const [x0, y0] = [between(start, xNode, first), between(y + 10, seated, ease(first))];
          if (u[3]) put(box(between(x0, zero, second) + u[4] * sums[c] * unit, between(y0, goal, ease(second)) - step / 2, x * unit * between(1, part, first), step - 1, "var(--value)"));
          bands.push(band(xNode + 10, seated, thick, zero, goal, 3, "var(--value)", 0.25 * u[3]));
          sums[c] += x * part;
        });
        seat += 2 * ROW * part;
        line += 1;
      });
      if ((b + 1) % many) return;
      put(box(xNode, middle - ROW, 10, 2 * ROW, "var(--query)"));
      ["● query", labels[get("row")]].forEach((text, i) => put(word(max(xNode + 5, xRibbon + 32 + 3.5 * text.length), middle - ROW - 18 + 13 * i, text, 1, "middle"))); // beside a weight
      sums.forEach((sum, c) => total(stack(c), stack(c) + block - 26, sum, unit, u[4]));
    });
    let end = now.picked.length * tall + 8;
    if (now.written.length) {
      // Each number of concat goes to every column, times a number of w_o.
      const rows = now.picked.flatMap((h) => each(d, (c) => h * d + c));
      const block = rows.length * 7 + 28;
      const [deep, sums] = [max(now.output.length * block, rows.length * 28), now.output.map(() => 0)];
      const small = (unit * reach) / max(reach, ...now.output.concat(...now.written).map(abs));
      const widest = max(...now.matrix.flat().map(abs));
      const [first, second] = [clip(2 * u[5]), clip(2 * u[5] - 1)];
      put(word(0, end + 18, "concat", u[4]), word(zero, end + 18, "output", second, "middle"));
      rows.forEach((r, i) => {
        const y = end + TOP + ((i + 0.5) * deep) / rows.length;
        put(word(0, y + 4, place(r), u[4]), word(118, y + 4, show(now.concat[r]), u[4], "end"));
        now.output.forEach((_, c) => {
          const [w, part] = [now.matrix[r][c], now.written[r][c]];
          const goal = end + TOP + c * block + (i + 0.5) * 7;
          const colour = `var(--${w < 0 ? "minus" : "plus"})`;
          if (w) bands.push(band(124, y, (12 * abs(w)) / widest, zero, goal, 3, colour, first * min(1, abs(w) / most)));
          if (first) put(box(between(124, zero, first) + second * sums[c] * small, between(y, goal, ease(first)) - 3, between(now.concat[r], part, first) * small, 6, colour));
          sums[c] += part;
        });
      });
      sums.forEach((sum, c) => total(end + TOP + c * block, end + TOP + (c + 1) * block - 24, sum, small, second, `col. ${c}: `));
      end += TOP + deep;
    }
    const wide = max(width, zero + cell / 2 + 4);
    svg.replaceChildren(...bands, ...marks);
    set(svg, { width: wide, height: end, viewBox: `0 0 ${wide} ${end}` });
  }

  /** The formula of the step, with the numbers of one token. */
  function formula(now) {
    const h = now.picked.includes(focus[0]) ? focus[0] : now.picked[0];
    const { products, scores, weights, values, parts } = now.heads[h];
    const j = h === focus[0] ? focus[1] : weights.indexOf(max(...weights));
    const row = get("row");
    const who = `${which(h)}${labels[j]}: `;
    const sums = now.picked.map((g) => `${which(g)}${vector(now.heads[g].output)}`).join(", ");
    return [
      "Press Play or Next, or move the slider.",
      `1 ${who}● query · ■ key = ${`product ${h} ${row} ${j}` in now.edits ? "" : `${vector(query[h][row])} · ${vector(key[h][j])} = `}${show(products[j])}`,
      `2 scale, ${who}score = scale × (query · key) = ${show(now.scale, 3)} × ${show(products[j])} = ${show(scores[j])}`,
      `3 softmax, ${who}weight = exp(score) / sum of exp = ${show(weights[j])}`,
      `4 ${who}weight × ▲ value = ${show(weights[j])} × ${vector(values[j])} = ${vector(parts[j])}`,
      now.share < 1 ? `5 output = average of the heads = ${vector(now.output)}${w_o.length ? ", too narrow for w_o" : ""}` : `5 output${w_o.length ? " of a head" : ""} = sum of weight × ▲ value = ${sums}`,
      `6 output = concat @ w_o = ${vector(now.output)}`,
    ][ceil(at)];
  }

  // Other controls
  const choose = (states) => { focus = []; send(states); tell(); };
  const queries = choice("● query", tokens.map((label, i) => [i, label]), (i) => choose({ _row: i }));
  const heads = choice("heads", [...each(H, (h) => [h, `head ${h}`]), ["both", "both"], ["average", "average"]], (shown) => choose({ _shown: String(shown) }));
  const advance = (by) => {
    const to = clip((by < 0 ? ceil : floor)((get("playing") ? at : goal) / abs(by)) * abs(by) + by, 0, count());
    halt();
    run(abs(by) < 1 ? to : at, to);
  };
  const pace = paces(advance);
  const play = make("button", { type: "button", onclick: () => (get("playing") ? halt() : send({ _playing: true })) });
  const slider = input("range", "steps", (x) => { halt(); send({ _at: x }); }, { min: 0, step: 0.05, onkeydown: (event) => leap(event, 0.25, 1, advance) });
  const lever = input("range", "scale", (x) => edit("scale", x), { min: 0, max: 3, step: 0.01 });
  const factorText = make("span");
  const words = make("p", { class: "now" });
  const cells = w_o.map((line, r) => line.map((_, c) => input("number", `w_o, row ${r}, column ${c}`,
    (x) => { if (isFinite(x)) edit(`w_o ${r} ${c}`, clip(x, -99, 99)); }, { step: 0.5, onblur: draw })));
  const matrix = make("div", { class: "wide" }, w_o.length ? make("table", {}, make("caption", {}, "w_o (step 6): type another number", scale(most)),
    make("thead", {}, make("tr", {}, make("td"), ...w_o[0].map((_, c) => make("th", { scope: "col" }, `col. ${c}`)))),
    make("tbody", {}, ...cells.map((line, r) => make("tr", {}, make("th", { scope: "row" }, place(r)), ...line.map((cell) => make("td", {}, cell)))))) : "");
  const first = () => compute({ ...state(), edits: {} });
  const aims = goals(tries(first).slice(0, w_o.length && H > 1 ? 4 : 3), first());
  const again = reset(model, ["_row", "_shown", "_at"], send, () => {
    at = get("at");
    halt();
    send({ _edits: {} });
    focus = [];
    aims.clear();
    tell();
  });
  root.classList.add("flow");
  root.append(make("style", {}, LOOK), make("p", {}, "Drag the handles: ▲ values and, from step 1, scores. Or select one and use the arrow keys."),
    make("div", { class: "line" }, queries.group, ...(H > 1 ? [heads.group] : [])),
    make("div", { class: "line" }, play, pace.back, pace.next, pace.why, slider), words,
    make("div", { class: "picture" }, svg, ...grips.flat(2).flatMap((grip) => [grip, grip.handle])), make("div", { class: "line" }, factorText, lever), matrix, aims.node, again);

  function draw() {
    const now = compute(state());
    if (at > count()) send({ _at: at = count() });
    paint(now);
    say(words, formula(now));
    queries.pick(get("row"));
    heads.pick(get("shown"));
    set(slider, { max: count(), "aria-valuetext": plain(words.textContent) });
    slider.value = at;
    pace.at(!at, at === count() && !get("playing"));
    lever.value = now.scale;
    say(factorText, `scale (step 2) ${show(now.scale, 3)}`);
    cells.flat().forEach((cell, i) => { if (document.activeElement !== cell) cell.value = Number(now.matrix.flat()[i].toFixed(2)); });
    matrix.hidden = !now.written.length;
    say(play, get("playing") ? "Pause" : "Play");
    aims.look({ ...now, at });
  }

  function tell() {
    speak(words.textContent);
  }

  /** From one place to another, once or in a loop. */
  function run(from, to, loop = false) {
    const whole = abs(to - from) * BEAT;
    const [mine, begun] = [++turn, performance.now() - (loop && at < to ? at * BEAT : 0)];
    goal = to;
    const go = (time) => {
      if (mine !== turn) return;
      const ms = calm.matches ? Infinity : max(0, time - begun) % (loop ? whole + 800 : Infinity);
      at = ms < whole ? clip(from + Math.sign(to - from) * (floor(ms / BEAT) + ease(clip((ms % BEAT) / (BEAT - 120)))), min(from, to), max(from, to)) : to;
      draw();
      if (!calm.matches && (loop || ms < whole)) return requestAnimationFrame(go);
      send({ _at: at, _playing: false });
      tell();
    };
    go(performance.now());
  }

  function halt() {
    turn += 1;
    goal = at;
    if (get("playing") || at !== get("at")) send({ _playing: false, _at: at });
  }

  function begin() {
    if (get("playing")) run(0, count(), true);
    else halt();
    draw();
  }

  const stops = [
    follow(model, ["_edits", "_row", "_shown"], draw),
    follow(model, ["_at"], () => { at = goal = get("at"); draw(); }),
    follow(model, ["_playing"], begin),
  ];
  const watch = new ResizeObserver(([entry]) => { width = max(280, floor(entry.contentRect.width)); draw(); });
  watch.observe(root);
  begin();
  return () => {
    turn += 1;
    watch.disconnect();
    stops.forEach((stop) => stop());
  };
}

export default { render };
