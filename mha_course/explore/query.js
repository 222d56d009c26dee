// Drag a query in the plane: dot products, scaled scores, weights and the fetched value follow.

import { choice, clip, dot, fill, follow, frame, goals, make, reset, say, sender, set, show, softmax, vector, wide } from "./shared.js";

const TEXT = {
  name: "Explorable: a query in the plane of the keys",
  intro: "Drag the tip of the ● query, or select it and use the arrow keys. Click a ■ key to focus on it; shift-click a second key, or choose it below, to average the two.",
  zero: "With the scale 0, all scores are 0.", equal: "Where {one} and {two} have equal scores, {rival} has at least as much.",
  same: "{one} and {two} are the same vector, so they always get the same weight.", less: "For every query, some other key has at least the score of {one}.",
  focusOn: "focus on {key}", focus: "focus on", average: "average it with", one: "Focus on", two: "and", none: "none", and: " and ",
  click: "Click: focus on this key. Shift-click: average it with the one in focus.",
  query: "query", tip: "query, arrow keys move it", axis: "query, {axis}", given: "● query = (", at: "x {x:2}, y {y:2}", edge: "The plane ends at {reach:2}.",
  columns: ["■ key", "▲ value", "● query · ■ key", "score", "weight"],
  scale: "score = scale × (● query · ■ key)", scales: ["no scale", "1/√d_k", "1/d_k"],
  aims: ["Make all weights equal.", "Give one key nearly all the weight: more than 0.95.", "Give two keys equal weights of 0.45 or more."],
  fetched: "fetched value = sum of weight × ▲ value = {output}", brief: "fetched value {output}",
  told: "{keys} have the largest weight, {most:2} each. Fetched value {output}.", toldOne: "{keys} has the largest weight, {most:2}. Fetched value {output}.",
  short: "A longer query would do better, but the plane ends here: {weights}.",
};
const SIZE = 380;
const HALF = SIZE / 2;
const DASHES = ["", "8 3", "2 3", "10 3 2 3"];

/** The numbers of one query. */
export function compute({ query, keys, values, scale }) {
  const products = keys.map((key) => dot(query, key));
  const scores = products.map((product) => product * scale);
  const weights = softmax(scores);
  const output = values[0].map((_, c) => dot(weights, values.map((value) => value[c])));
  return { products, scores, weights, output };
}

/** Round numbers on an axis from -reach to reach, at most four to each side, without 0. */
export function ticks(reach) {
  const ten = 10 ** Math.floor(Math.log10(reach / 4));
  const step = [1, 2, 5, 10].map((n) => n * ten).find((step) => step >= reach / 4 - 1e-9);
  const count = Math.ceil(reach / step) - 1; // none at the edge
  return Array.from({ length: 2 * count + 1 }, (_, i) => Number(((i - count) * step).toPrecision(6))).filter((x) => x !== 0);
}

const PLACES = [[14, 20, 0], [14, -10, 0], [-14, 20, 1], [-14, -10, 1], [20, 5, 0], [-20, 5, 1], [0, 34, 0.5], [0, -20, 0.5], [14, 42, 0], [-14, 42, 1], [14, -32, 0], [-14, -32, 1], [34, 20, 0], [-34, 20, 1]];

/** Where a label of this size beside a point covers the least of the boxes `taken`; the place `last` if it is as good. */
export function beside([x, y], { width, height }, taken, last = PLACES[0]) {
  const common = (a, size, c, other) => Math.max(0, Math.min(a + size, c + other) - Math.max(a, c));
  const covered = ([dx, dy, share]) => {
    const [left, top] = [x + dx - share * width, y + dy - 0.8 * height];
    const inside = common(left, width, 0, SIZE) * common(top, height, 0, SIZE);
    return 9 * (width * height - inside) + taken.reduce((sum, box) =>
      sum + common(left, width, box.x, box.width) * common(top, height, box.y, box.height), 0);
  };
  return [last, ...PLACES].reduce((a, b) => (covered(b) < covered(a) - 1e-6 ? b : a));
}

/** The query that the chosen keys, one or two, ask for: `{ query }`, or `{ why }` there is none.
 * One key gets over 0.99 of the weight if the query can be that long within `reach`. Two keys i and j get equal
 * parts, `k_i · q = k_j · q`; the query is as long as it can be, so the others get the least. */
export function aim({ keys, labels, scale, reach, chosen }) {
  if (scale === 0) return { why: TEXT.zero };
  const rows = keys.map((key) => key.map((x) => x * scale));
  const wanted = chosen.map((i) => rows[i]);
  const others = keys.map((_, i) => i).filter((i) => !chosen.includes(i));
  const minus = (a, b) => a.map((x, c) => x - b[c]);
  const both = ([x, y]) => [[-y, x], [y, -x]]; // at a right angle, to either side
  const apart = minus(wanted[0], wanted.at(-1));
  // Two keys score the same only at a right angle to their difference. For one: along the key if that will do,
  // else where its lead is largest, which is away from one other key or at a right angle to two.
  const ways = apart.some((x) => x !== 0) ? both(apart) : [
    wanted[0],
    ...others.map((i) => minus(wanted[0], rows[i])),
    ...others.flatMap((i, at) => others.slice(at + 1).flatMap((j) => both(minus(rows[i], rows[j])))),
  ];
  const found = ways.filter((way) => Math.hypot(...way) > 1e-9).map((way) => {
    const unit = way.map((x) => x / Math.hypot(...way));
    const [rival] = [...others].sort((i, j) => dot(rows[j], unit) - dot(rows[i], unit));
    const lead = Math.min(...wanted.map((row) => dot(row, unit))) - (rival === undefined ? -Infinity : dot(rows[rival], unit));
    const most = reach / Math.max(...unit.map(Math.abs));
    return { unit, rival, lead, most, length: Math.log(200 * keys.length) / lead || reach / 2 };
  });
  const best = found.reduce((a, b) => (b.lead > a.lead ? b : a));
  const [one, two] = chosen.map((i) => labels[i]);
  if (best.lead <= 1e-9) {
    const same = others.find((i) => minus(rows[i], wanted[0]).every((x) => x === 0));
    if (two !== undefined) return { why: fill(TEXT.equal, { one, two, rival: labels[best.rival] }) };
    if (same !== undefined) return { why: fill(TEXT.same, { one, two: labels[same] }) };
    return { why: fill(TEXT.less, { one }) };
  }
  const { unit, most, length } = two === undefined ? found.find(({ lead, length, most }) => lead > 1e-9 && length <= most) ?? best : { ...best, length: best.most };
  return { query: unit.map((x) => x * Math.min(length, most)) };
}

const LOOK = `
.mha-query {
.lay { display: grid; gap: 8px 20px; margin: 8px 0; padding: 0 6px; justify-items: center; } .side { min-width: 0; width: 100%; }
.plane { position: relative; width: 272px; cursor: crosshair; } .plane svg { display: block; width: 100%; height: auto; } .plane text { font-size: 18px; pointer-events: none; }
.plane .tick { font-size: 15.4px; opacity: 0.75; }
.plane > :is(button, .handle) { position: absolute; width: max(28px, var(--target)); height: max(28px, var(--target)); min-width: 0; min-height: 0; margin: 0; padding: 0; border: 0; border-radius: 50%; background: none; transform: translate(-50%, -50%); }
.plane > .handle { cursor: grab; touch-action: none; background: radial-gradient(var(--query) 9px, var(--ground) 10px 11px, transparent 12px); }
.plane > button[aria-pressed=true] { border: 2px solid var(--accent); }
.strip { position: sticky; top: var(--over, 0px); z-index: 1; width: 100%; background: var(--ground); display: grid; grid-template-columns: repeat(auto-fit, minmax(96px, 1fr)); gap: 4px 12px; padding: 4px 0; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.strip .name { display: flex; gap: 6px; justify-content: space-between; } .strip .name :first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } .strip .fetched { grid-column: 1 / -1; font-weight: 600; }
.lay .bar { height: 6px; } .side table { width: 100%; } .side :is(td, th) { padding: 2px 4px; } .side th:first-child { text-align: left; min-width: 52px; } .side td:last-child { min-width: 64px; } .side p { margin: 4px 0; }
.side .aims label { display: inline-flex; gap: 6px; align-items: center; margin: 0 8px 6px 0; } .side .aims select { margin: 0; } .why { min-height: 1.4em; }
@container mha (width >= 640px) {
  .lay { grid-template-columns: 272px 1fr; align-items: start; } .strip { display: none; }
}
@container mha (width >= 820px) {
  .lay { grid-template-columns: 380px 1fr; } .plane { width: 380px; } .plane text { font-size: 13px; } .plane .tick { font-size: 11px; }
}
}`;

function render({ model, el }) {
  const keys = model.get("_keys");
  const values = model.get("_values");
  const labels = model.get("_labels");
  const reach = model.get("_reach");
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  root.classList.add("mha-query");
  const at = ([x, y]) => [SIZE / 2 + (x / reach) * (SIZE / 2), SIZE / 2 - (y / reach) * (SIZE / 2)];
  const percent = (point) => at(point).map((x) => `${(100 * x) / SIZE}%`);
  const state = () => ({ query: model.get("_query"), scale: model.get("_scale"), keys, values });
  let side; // of the tip, where its name is
  let chosen = []; // the keys that the query was sent to, until it is moved otherwise

  // The plane: lines and numbers, and over them what can be pressed.
  const line = (x1, y1, x2, y2, attributes) => make("line", { x1, y1, x2, y2, stroke: "var(--line)", ...attributes });
  const word = (text, attributes) => make("text", attributes, text);
  const svg = make("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, "aria-hidden": "true" }, line(0, HALF, SIZE, HALF), line(HALF, 0, HALF, SIZE));
  for (const tick of ticks(reach)) {
    const [x, y] = at([tick, tick]);
    svg.append(
      line(x, HALF - 4, x, HALF + 4), word(show(tick, Number.isInteger(tick) ? 0 : 2), { class: "tick", x, y: HALF + 19, "text-anchor": "middle" }),
      line(HALF - 4, y, HALF + 4, y), word(show(tick, Number.isInteger(tick) ? 0 : 2), { class: "tick", x: HALF - 8, y: y + 5, "text-anchor": "end" }));
  }
  const arrows = keys.map((key, i) => {
    const [x, y] = at(key);
    const stem = line(HALF, HALF, x, y, { stroke: "var(--key)", "stroke-dasharray": DASHES[i % DASHES.length] });
    const head = make("rect", { fill: "var(--key)" });
    const inward = x > SIZE * 0.75 ? "end" : x < SIZE * 0.25 ? "start" : "middle";
    svg.append(stem, head, word(labels[i], { x, y: y > HALF + 1 ? y + 26 : y - 14, "text-anchor": inward }));
    const [left, top] = percent(key);
    const button = make("button", {
      type: "button", "aria-label": fill(TEXT.focusOn, { key: labels[i] }), style: `left: ${left}; top: ${top}`,
      title: TEXT.click,
      onclick: (event) => choose(event.shiftKey && chosen.length && chosen[0] !== i ? [chosen[0], i] : [i]),
    });
    return { stem, head, button };
  });
  const stem = line(HALF, HALF, 0, 0, { stroke: "var(--query)", "stroke-width": 4 });
  const name = word(TEXT.query, { "font-weight": "bold" });
  svg.append(stem, name);
  const tip = make("div", {
    class: "handle", tabindex: 0, role: "slider", "aria-label": TEXT.tip,
    "aria-valuemin": -reach, "aria-valuemax": reach,
  });
  const plane = make("div", { class: "plane" }, svg, ...arrows.map(({ button }) => button), tip);

  // The numbers
  const whole = (row) => {
    const texts = row.map((x) => show(x, Number.isInteger(x) ? 0 : 2));
    return texts.length === 1 ? texts[0] : `(${texts.join(", ")})`;
  };
  const weightOf = () => [make("span"), make("div", { class: "bar" })];
  const cells = labels.map((label, i) => {
    const [number, bar] = weightOf();
    const row = [make("td"), make("td"), number];
    return { row, bar, line: make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, whole(values[i])), row[0], row[1], make("td", {}, number, bar)) };
  });
  const table = make("table", {},
    make("thead", {}, make("tr", {}, ...TEXT.columns.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...cells.map((cell) => cell.line)));
  const fetched = make("p", { "data-part": "output" });
  const short = labels.map((label) => {
    const [number, bar] = weightOf();
    return { number, bar, part: make("div", {}, make("div", { class: "name" }, make("span", {}, label), number), bar) };
  });
  const brief = make("div", { class: "fetched" });
  const strip = make("div", { class: "strip", "aria-hidden": "true" }, ...short.map(({ part }) => part), brief);

  // What moves the query
  const typed = (x) => show(x).replace("−", "-");
  const numbers = ["x", "y"].map((axis, c) =>
    make("input", {
      type: "number", step: 0.1, "aria-label": fill(TEXT.axis, { axis }),
      oninput: (event) => {  // at each key: some front ends take Enter for themselves
        if (Number.isNaN(event.target.valueAsNumber)) return;  // empty, or only a minus sign
        move(state().query.map((x, i) => (i === c ? event.target.valueAsNumber : x)), false);
      },
      onchange: ({ target }) => {
        if (Math.abs(target.valueAsNumber) > reach) say(why, fill(TEXT.edge, { reach }));
        target.value = typed(state().query[c]);
        tell();
      },
      onblur: draw,  // the number that counts, within the plane
    }));
  const d_k = keys[0].length;
  const offered = [1, 1 / Math.sqrt(d_k), 1 / d_k].map((scale, i) => [scale, TEXT.scales[i]]);
  const scales = choice(TEXT.scale, offered, (scale) => { send({ _scale: scale }); draw(); tell(); });
  const pickers = [0, 1].map((which) => make("select", {
    "aria-label": which ? TEXT.average : TEXT.focus,
    onchange: ({ target }) => choose(which ? [chosen[0], ...(target.value ? [Number(target.value)] : [])] : target.value ? [Number(target.value)] : []),
  }, make("option", { value: "" }, TEXT.none), ...labels.map((label, i) => make("option", { value: i }, label))));
  const why = make("p", { class: "why" });
  const tries = goals([
    [TEXT.aims[0], ({ weights }) => Math.max(...weights) - Math.min(...weights) < 0.02],
    [TEXT.aims[1], ({ weights }) => Math.max(...weights) > 0.95],
    [TEXT.aims[2], ({ weights }) => weights.filter((weight) => weight >= 0.45).length === 2],
  ].slice(0, keys.length > 2 ? 3 : keys.length > 1 ? 2 : 0), compute(state()));
  const again = reset(model, ["_query", "_scale"], send, () => {
    choose([]);
    tries.clear();
    draw();
    tell();
  });

  root.append(make("style", {}, LOOK), make("div", { class: "lay" }, plane, strip, make("div", { class: "side" },
    make("p", {}, TEXT.intro),
    make("p", {}, TEXT.given, numbers[0], ", ", numbers[1], ")"),
    make("div", { class: "aims" }, make("label", {}, TEXT.one, pickers[0]), make("label", {}, TEXT.two, pickers[1])), why,
    scales.group, wide(table), fetched, tries.node, again)));

  /** Where it is in the plane. */
  function boxOf(node) {
    const [box, whole] = [node, svg].map((each) => each.getBoundingClientRect());
    const unit = SIZE / (whole.width || SIZE);
    return { x: (box.left - whole.left) * unit, y: (box.top - whole.top) * unit, width: box.width * unit, height: box.height * unit };
  }

  function draw() {
    const now = state();
    const { products, scores, weights, output } = compute(now);
    const [x, y] = at(now.query);
    const [left, top] = percent(now.query);
    set(stem, { x2: x, y2: y });
    set(tip, {
      style: `left: ${left}; top: ${top}`, "aria-valuenow": now.query[0],
      "aria-valuetext": fill(TEXT.at, { x: now.query[0], y: now.query[1] }),
    });
    const taken = [...svg.querySelectorAll("text, rect")].filter((one) => one !== name).map(boxOf);
    side = beside([x, y], boxOf(name), taken, side);
    set(name, { x: x + side[0], y: y + side[1], "text-anchor": ["start", "middle", "end"][2 * side[2]] });
    weights.forEach((weight, i) => {
      set(arrows[i].stem, { "stroke-width": 1.5 + 5 * weight });
      const [side, [x, y]] = [8 + 9 * weight, at(keys[i])];
      set(arrows[i].head, { x: x - side / 2, y: y - side / 2, width: side, height: side });
      set(arrows[i].button, { "aria-pressed": chosen.includes(i) });
      [show(products[i]), show(scores[i]), show(weight, 3)].forEach((text, c) => say(cells[i].row[c], text));
      say(short[i].number, show(weight, 2));
      [cells[i], short[i]].forEach(({ bar }) => { bar.style.width = `${100 * weight}%`; });
    });
    numbers.forEach((input, c) => { if (document.activeElement !== input) input.value = typed(now.query[c]); });
    pickers.forEach((picker, which) => {
      picker.value = chosen[which] ?? "";
      [...picker.options].forEach((option) => { option.disabled = which === 1 && option.value === String(chosen[0]); });
    });
    pickers[1].disabled = chosen.length === 0;
    scales.pick(offered.map(([scale]) => scale).find((scale) => Math.abs(scale - now.scale) < 1e-5) ?? now.scale);
    say(fetched, fill(TEXT.fetched, { output: vector(output) }));
    say(brief, fill(TEXT.brief, { output: vector(output) }));
    if (!numbers.includes(document.activeElement)) tries.look({ weights }); // a number may be half typed
  }

  function tell() {
    const { weights, output } = compute(state());
    const most = Math.max(...weights);
    const best = labels.filter((_, i) => weights[i] > most - 0.0005); // as it is written
    speak(fill(best.length > 1 ? TEXT.told : TEXT.toldOne, { keys: best.join(TEXT.and), most, output: vector(output) }));
  }

  function move(query, aloud) {
    chosen = [];
    say(why, "");
    send({ _query: query.map((x) => clip(x, -reach, reach)) });
    draw();
    if (aloud) tell();
  }

  /** Send the query to one key, or between two; else say why not. */
  function choose(next) {
    const { query, why: reason } = next.length ? aim({ ...state(), labels, reach, chosen: next }) : {};
    if (query) move(query, true);
    chosen = next;
    const share = query ? compute(state()).weights.filter((_, i) => next.includes(i)) : [];
    const ends = query && share.reduce((a, b) => a + b, 0) < 0.9;
    say(why, reason ?? (ends ? fill(TEXT.short, { weights: share.map((weight) => show(weight)).join(TEXT.and) }) : ""));
    if (why.textContent) speak(why.textContent);
    draw();
  }

  // A mouse may press anywhere in the plane. A finger must grip the handle: elsewhere its swipe scrolls the page.
  let grip = [0, 0]; // from the middle of the handle to the finger
  const drag = (event) => {
    const box = svg.getBoundingClientRect();
    move([
      ((event.clientX - grip[0] - box.left) / box.width - 0.5) * 2 * reach,
      (0.5 - (event.clientY - grip[1] - box.top) / box.height) * 2 * reach,
    ], false);
  };
  plane.addEventListener("pointerdown", (event) => {
    const finger = event.pointerType === "touch";
    if (event.target.closest("button") || event.button > 0 || (finger && event.target !== tip)) return;
    const box = tip.getBoundingClientRect();
    grip = finger ? [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2] : [0, 0];
    plane.setPointerCapture(event.pointerId);
    tip.focus({ preventScroll: true });
    event.preventDefault();
    drag(event);
  });
  plane.addEventListener("pointermove", (event) => { if (plane.hasPointerCapture(event.pointerId)) drag(event); });
  plane.addEventListener("lostpointercapture", tell);
  tip.addEventListener("keydown", (event) => {
    const step = (event.shiftKey ? 5 : 1) * (reach / 40);
    const steps = {
      ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step],
      Home: [-2 * reach, 0], End: [2 * reach, 0], PageUp: [0, 2 * reach], PageDown: [0, -2 * reach], " ": [0, 0],
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    move(state().query.map((x, c) => x + steps[event.key][c]), true);
  });
  draw();
  const watch = new ResizeObserver(draw); // labels have another size
  watch.observe(plane);
  const leave = follow(model, ["_query", "_scale"], draw);
  return () => {
    watch.disconnect();
    leave();
  };
}

export default { render };
