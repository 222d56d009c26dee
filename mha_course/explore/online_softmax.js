// Attention of one query in one pass over blocks of keys: m, l and o before and after each block, with a bug to switch on.

import { choice, clip, follow, frame, goals, handle, make, paces, reset, say, sender, set, show, vector, within } from "./shared.js";

const { abs, exp, max, min } = Math;

/** What each block does to m and to the sums, which are l and then the numbers of o; first, what is there before them.
 * `rescaled` says which old sums get the factor: "l and o" is right. `right` are the sums of all keys so far. */
export function compute({ scores, hidden, values, block, rescaled }) {
  const seen = scores.map((score, j) => (hidden[j] ? -Infinity : score));
  const terms = values.map((value) => [1, ...value]); // l adds up ones, o the values
  const add = (from, to, shift) => terms[0].map((_, c) =>
    terms.slice(from, to).reduce((sum, term, j) => sum + exp(seen[from + j] - shift) * term[c], 0));
  let [m, sums] = [-Infinity, terms[0].map(() => 0)];
  const steps = [{ from: 0, to: 0, before: { m, sums }, highest: m, m, shift: 0, factor: 0, kept: sums, added: sums, sums, right: sums }];
  for (let from = 0; from < seen.length; from += block) {
    const to = min(from + block, seen.length);
    const highest = max(...seen.slice(from, to));
    const before = { m, sums };
    m = max(m, highest);
    const shift = m === -Infinity ? 0 : m; // -Infinity - -Infinity is NaN
    const factor = exp(before.m - shift);
    const kept = sums.map((sum, c) => sum * (rescaled === "neither" || (rescaled === "o" && c === 0) ? 1 : factor));
    const added = add(from, to, shift);
    sums = kept.map((sum, c) => sum + added[c]);
    steps.push({ from, to, before, highest, m, shift, factor, kept, added, sums, right: add(0, to, shift) });
  }
  return steps;
}

/** The output so far, o / l; 0 if no key was seen. */
export function divide([l, ...o]) {
  return o.map((sum) => (l ? sum / l : 0));
}

/** How far the output after a step is from that of the softmax; rounding does not count. */
export function off({ sums, right }) {
  const [here, there] = [sums, right].map(divide);
  const most = max(...here.map((x, c) => abs(x - there[c])));
  return most > 1e-9 * (1 + max(...there.map(abs))) ? most : 0;
}

const number = (x) => (x === -Infinity ? "−∞" : x > 0 && x < 0.001 ? x.toExponential(1).replace("-", "−") : show(x));
const precise = (x) => (x < 0.001 ? number(x) : show(x, 3));
const keysOf = ({ from, to }) => (to - from > 1 ? `keys ${from} to ${to - 1}` : `key ${from}`);

/** What the last block did, in words. */
export function explain(steps, at, rescaled) {
  if (!at) return "No block is read yet: m = −∞, l = 0 and o = 0. Press Next.";
  const { before, highest, m, factor } = steps[at];
  const name = `Block ${at}`;
  const idle = rescaled === "l and o" ? "" : " In this block the bug does nothing.";
  if (m === -Infinity) {
    return `${name}: all keys so far are hidden, and m is still −∞. The difference −∞ − (−∞) is NaN. So 0 is subtracted in place of m, and every weight is e^(−∞) = 0.${idle}`;
  }
  if (highest === -Infinity) return `${name}: all its keys are hidden. m stays, the factor is 1, and the block adds 0.${idle}`;
  if (before.m === -Infinity) return `${name}: no visible key came before it. The old sums are 0, and so is the factor, e^(−∞).${idle}`;
  if (m === before.m) return `${name} does not raise m. The factor is e^0 = 1, so the old sums stay.${idle}`;
  const raised = `${name} raises m from ${number(before.m)} to ${number(m)}.`;
  if (rescaled === "l and o") return `${raised} The weights in the old sums were computed with the old m. So l and o are multiplied by ${precise(factor)}.`;
  return `${raised} But ${rescaled === "o" ? "only o is" : "neither l nor o is"} multiplied by ${precise(factor)}.`;
}

const AIMS = [
  ["With 1 or 2 keys in a block, choose “only o” or “neither”. Change scores until the last output is right all the same.", ({ steps, at, block, rescaled }) =>
    rescaled !== "l and o" && block < 3 && at === steps.length - 1 && steps.filter(({ highest }) => highest > -Infinity).length > 1 && !off(steps.at(-1))],
  ["Make the factor of a block smaller than 0.01, but not 0.", ({ step }) => step.factor > 0 && step.factor < 0.01],
  ["Read a block after which m is still −∞.", ({ step, at }) => at > 0 && step.m === -Infinity],
];

const STATES = ["_scores", "_hidden", "_block", "_step", "_rescaled"];
const HATCH = "repeating-linear-gradient(135deg, var(--c) 0 3px, var(--ground) 3px 6px)";
const LOOK = `
.online {
[hidden] { display: none !important; } .lay { display: grid; gap: 8px 24px; margin: 8px 0; } .lay > * { min-width: 0; }
.block { font-size: 12px; padding-left: 8px; border-left: 4px solid transparent; margin-top: 4px; }
.key { display: grid; grid-template-columns: 52px 1fr auto auto; gap: 0 6px; align-items: center; padding-left: 8px; border-left: 4px solid transparent; min-height: 40px; }
:is(.key, .block).read { border-color: var(--line); } :is(.key, .block).now { border-color: var(--accent); } .block.now { font-weight: 700; }
.name { font-size: 12px; line-height: 1.3; overflow-wrap: anywhere; }
&.vectors .key { grid-template-columns: 1fr auto auto; } &.vectors .name { grid-column: 1 / -1; } &.vectors .name br { display: none; }
.score { user-select: none; position: relative; height: max(38px, var(--target)); margin: 0 max(14px, calc(var(--target) / 2)); }
.score > * { position: absolute; } .score .fill { top: 18px; height: 14px; background: var(--key); }
.score .weight { top: 0; left: 0; font-size: 12px; line-height: 15px; white-space: nowrap; }
.peak { z-index: 1; top: 15px; height: 20px; border-left: 3px solid; margin-left: -1px; box-shadow: 0 0 0 1px var(--ground); pointer-events: none; } .peak.old { border-left: 2px dashed; } .zero { top: 15px; height: 20px; border-left: 1px solid var(--line); }
.handle { top: 25px; width: max(28px, var(--target)); height: max(28px, var(--target)); transform: translate(-50%, -50%); cursor: ew-resize; touch-action: pan-y; }
.handle::after { content: ""; position: absolute; inset: 0; margin: auto; width: 15px; height: 15px; background: var(--key); border: 2px solid var(--ground); outline: 1px solid var(--key); }
.key.off :is(.fill, .handle) { display: none; } .key.off .score { background: repeating-linear-gradient(135deg, transparent 0 6px, var(--line) 6px 7px); } .key.off .weight { background: var(--ground); padding-right: 4px; }
input[type=number] { width: 66px; } .key button { margin: 0; padding: 3px 6px; width: max(40px, var(--target)); }
.line { display: flex; flex-wrap: wrap; align-items: center; gap: 0 8px; } .line label { display: inline-flex; align-items: center; gap: 6px; } .line select { margin: 0; }
.now-words { min-height: 5.6em; font-weight: 600; margin: 2px 0; }
.gauge { margin: 5px 0; } .gauge > b { font-size: 13px; } .level { display: grid; grid-template-columns: 76px 62px 1fr; gap: 6px; align-items: center; font-size: 12px; line-height: 17px; font-variant-numeric: tabular-nums; }
.level > :nth-child(2) { text-align: right; } .rail { position: relative; height: 11px; border-bottom: 1px solid var(--line); } .rail > * { position: absolute; top: 0; height: 10px; box-sizing: border-box; }
.rail .fill { background: var(--c); border: 1px solid var(--c); } .before .fill { background: none; } .added .fill { background: ${HATCH}; } .right .fill { background: none; border: 2px dashed currentColor; }
.rail .zero { border-left: 1px solid var(--line); } .after { font-weight: 700; }
.verdict { min-height: 1.4em; } .said { min-height: 2.8em; } .said:not(:empty) { position: sticky; bottom: 0; z-index: 2; background: var(--ground); }
@container mha (width >= 700px) { .lay { grid-template: auto 1fr / 1fr 1fr; } .side { grid-area: 1 / 2 / 3; } }
}`;

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const values = get("values");
  const wide = values[0].length;
  const send = sender(model, el);
  const { root, speak } = frame(el, "Explorable: softmax in one pass over blocks of keys");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const state = () => {
    const problem = { scores: get("scores"), hidden: get("hidden"), values, block: get("block"), rescaled: get("rescaled") };
    const steps = compute(problem);
    const at = min(get("step"), steps.length - 1);
    return { ...problem, steps, at, last: steps.length - 1, step: steps[at] };
  };
  let timer = null; // while it plays

  // The keys
  const percent = (x, low, high) => `${(100 * (x - low)) / (high - low)}%`;
  const note = make("p", { class: "said", role: "status" });
  const act = (states, aloud = true) => {
    say(note, "");
    send(states);
    draw();
    if (aloud) tell();
  };
  const move = (j, score, aloud) =>
    act({ _scores: get("scores").with(j, clip(Number(score.toFixed(6)), ...get("range"))), _hidden: get("hidden").with(j, false) }, aloud);
  const span = () => get("range")[1] - get("range")[0];
  const tick = () => 10 ** Math.floor(Math.log10(span() / 2)) / 10;
  const rows = values.map((value, j) => {
    const [fill, zero, old, mark, weight] = ["fill", "zero", "peak old", "peak", "weight"].map((name) => make("div", { class: name }));
    const grip = handle(() => {
      grip.focus({ preventScroll: true });
      finish();
      return [get("scores"), fill.parentElement.clientWidth];
    }, (way, [scores, width]) => move(j, Math.round((scores[j] + (span() * way) / width) / tick()) * tick(), false),
    ([scores], scrolls) => act(scrolls ? { _scores: scores } : {}));
    set(grip, { role: "slider", tabindex: 0, "aria-label": `score of key ${j}` });
    grip.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity, " ": 0 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      move(j, get("scores")[j] + by * (event.shiftKey ? 10 : 1) * tick());
    });
    const input = make("input", {
      type: "number", step: 0.1, placeholder: "−∞", "aria-label": `score of key ${j}, a number`,
      oninput: ({ target }) => { if (isFinite(target.valueAsNumber)) move(j, target.valueAsNumber, false); },
      onchange: () => { if (!get("hidden")[j]) within(input, get("scores")[j], note, `the score of key ${j}`); tell(); }, onblur: () => draw(),
    });
    const hide = make("button", { type: "button", "aria-label": `hide key ${j}`, title: "hide this key: its score is −∞", onclick: () => act({ _hidden: get("hidden").with(j, !get("hidden")[j]) }) }, "−∞");
    const block = make("div", { class: "block" });
    const numbers = value.map((x) => show(x, Number.isInteger(x) ? 0 : 2)).join(", ");
    const key = make("div", { class: "key" }, make("div", { class: "name" }, `■ key ${j} `, make("br"), `▲ ${wide > 1 ? `(${numbers})` : numbers}`),
      make("div", { class: "score" }, zero, fill, old, mark, weight, grip), input, hide);
    return { fill, zero, old, mark, weight, grip, input, hide, block, key };
  });

  // Gauges: each row has a name, a number, a bar.
  const rail = (kind, colour) => {
    const [name, text, fill, zero] = [make("span"), make("span"), make("div", { class: "fill" }), make("div", { class: "zero" })];
    const node = make("div", { class: `level ${kind}`, style: `--c: var(--${colour})` }, name, text, make("div", { class: "rail" }, zero, fill));
    const put = (label, x, [low, high], from = 0, written = number(x)) => {
      const to = x === -Infinity ? from : from + x;
      say(name, label);
      say(text, written);
      fill.hidden = to === from;
      zero.style.left = percent(0, low, high);
      fill.style.left = percent(min(from, to), low, high);
      fill.style.width = percent(abs(to - from), 0, high - low);
    };
    return { node, fill, put };
  };
  const gauge = (title, colour, kinds) => {
    const rails = Object.fromEntries(kinds.map((kind) => [kind, rail(kind, colour)]));
    return { node: make("div", { class: "gauge" }, make("b", {}, title), ...kinds.map((kind) => rails[kind].node)), ...rails };
  };
  const each = (name, c) => (wide > 1 ? `${name}[${c}]` : name);
  const highest = gauge("m, the highest score so far", "key", ["before", "added", "after"]);
  const factor = gauge("factor = e^(m before − m after)", "accent", ["kept"]);
  const sums = ["l, the denominator so far", ...values[0].map((_, c) => `▲ ${each("o", c)}, the numerator so far`)]
    .map((title, c) => gauge(title, c ? "value" : "weight", ["before", "kept", "added", "after", "right"]));
  const outputs = values[0].map((_, c) => gauge(`▲ ${each("output", c)} so far = ${each("o", c)} / l`, "value", ["after", "right"]));
  const words = make("p", { class: "now-words" });
  const verdict = make("p", { class: "verdict" });

  // Controls
  const pace = paces((way) => { halt(); go(state().at + way); });
  const play = make("button", { type: "button", onclick: () => {
    if (timer !== null) return halt();
    const { at, last } = state();
    if (at === last) go(0);
    turn();
  } });
  const size = make("select", { onchange: ({ target }) => {
    const [{ to }, block] = [state().step, Number(target.value)];
    halt();
    act({ _block: block, _step: to === values.length ? Math.ceil(to / block) : Math.floor(to / block) });
  } }, ...values.map((_, j) => make("option", { value: j + 1 }, j + 1)));
  const kinds = choice("old sums that get the factor", [["l and o", "l and o"], ["o", "only o"], ["neither", "neither"]], (rescaled) => act({ _rescaled: rescaled }));
  const aims = goals(AIMS, state());
  const again = reset(model, STATES, send, () => {
    halt();
    aims.clear();
    act({});
  });
  root.classList.add("online", ...(wide > 1 ? ["vectors"] : []));
  root.append(make("style", {}, LOOK), make("div", { class: "lay" },
    make("div", { class: "keys" }, make("p", {}, "Drag a square, use the arrow keys on it, or type a score. The button −∞ hides a key. Thick line: m now; dashed line: m before. The weight is e^(score − m). ■ is a key, ▲ a value."),
      ...rows.flatMap(({ block, key }) => [block, key]), note),
    make("div", { class: "side" }, make("div", { class: "line" }, make("label", {}, "keys in a block", size)), kinds.group,
      make("div", { class: "line" }, pace.back, pace.next, play, pace.why), words,
      ...[highest, factor, ...sums, ...outputs].map(({ node }) => node), verdict,
      make("p", {}, "Numbers are rounded. If you add or multiply them, your result can differ a little.")),
    make("div", {}, aims.node, again)));

  function draw() {
    const now = state();
    const { steps, at, last, step, rescaled, scores, hidden } = now;
    const bug = rescaled !== "l and o";
    const range = get("range");
    const lines = (mark, m, seen) => {
      mark.hidden = !seen || m === -Infinity;
      if (!mark.hidden) mark.style.left = percent(m, ...range);
    };
    rows.forEach(({ fill, zero, old, mark, weight, grip, input, hide, block, key }, j) => {
      const own = Math.floor(j / now.block);
      const kind = own === at - 1 ? "now" : own < at ? "read" : "";
      const score = hidden[j] ? -Infinity : scores[j];
      block.hidden = j % now.block !== 0;
      say(block, `block ${own + 1}, ${keysOf(steps[own + 1])}${kind === "now" ? ": read now" : kind ? ": read" : ""}`);
      set(block, { class: `block ${kind}` });
      set(key, { class: `key ${kind} ${hidden[j] ? "off" : ""}` });
      zero.style.left = percent(0, ...range);
      fill.style.left = percent(min(0, scores[j]), ...range);
      fill.style.width = percent(abs(scores[j]), 0, span());
      lines(mark, step.m, kind);
      lines(old, step.before.m, kind && step.before.m !== step.m);
      // With the bug, too, the weight that the key should have.
      say(weight, hidden[j] ? "hidden" : kind ? `weight ${precise(exp(score - step.shift))}` : "");
      set(input, { min: range[0], max: range[1] });
      set(grip, { style: `left: ${percent(scores[j], ...range)}`, "aria-valuemin": range[0], "aria-valuemax": range[1], "aria-valuenow": scores[j], "aria-valuetext": show(scores[j]) });
      set(hide, { "aria-pressed": hidden[j] });
      if (document.activeElement !== input) input.value = hidden[j] ? "" : show(scores[j]).replace("−", "-");
    });
    highest.before.put("before", step.before.m, range);
    highest.added.put("block", step.highest, range);
    highest.after.put("after", step.m, range);
    factor.kept.put("", step.factor, [0, 1], 0, at ? precise(step.factor) : "");
    sums.forEach((rails, c) => {
      const points = steps.flatMap((each) => [each.before.sums[c], each.kept[c], each.sums[c], each.right[c]]);
      const reach = [min(0, ...points), max(1e-9, ...points)];
      const forgot = bug && step.factor !== 1 && step.before.m > -Infinity && (c === 0 || rescaled === "neither");
      const { before, kept, added, right } = step;
      rails.before.put("before", before.sums[c], reach);
      rails.kept.put(forgot ? "× 1 (bug)" : `× ${at ? precise(step.factor) : "factor"}`, kept[c], reach);
      rails.added.put("+ block", added[c], reach, kept[c]);
      rails.after.put("after", step.sums[c], reach);
      rails.right.put("right", right[c], reach);
      rails.right.node.hidden = !bug;
    });
    const [here, there] = [step.sums, step.right].map(divide);
    outputs.forEach((rails, c) => {
      const column = values.map((value) => value[c]);
      const reach = [min(0, ...column), max(1e-9, ...column)];
      rails.after.put("here", here[c], reach);
      rails.right.put("softmax", there[c], reach);
    });
    const wrong = off(step);
    say(words, explain(steps, at, rescaled));
    say(verdict, !at ? "" : !step.sums[0] ? "No key is seen, so l is 0. 0 / 0 is NaN; the output is set to 0."
      : `${at === last ? "All keys are read" : `After ${keysOf({ from: 0, to: step.to })}`}: o / l = ${vector(here)}, softmax @ values = ${vector(there)}. ${wrong ? `Wrong by ${wrong < 0.005 ? "less than 0.01" : show(wrong)}.` : "They are equal."}`);
    pace.at(at === 0, at === last);
    say(play, timer === null ? "Play" : "Pause");
    size.value = now.block;
    kinds.pick(rescaled);
    aims.look(now);
  }

  function tell() {
    speak(`${words.textContent} ${verdict.textContent}`);
  }

  /** To another step; one step forward is shown as a short move. */
  function go(to) {
    const { at } = state();
    finish();
    act({ _step: to });
    if (to === at + 1 && !calm.matches) {
      const place = ({ fill }) => ({ left: fill.style.left, width: fill.style.width });
      const grow = (rail, first) => rail.fill.animate([first, place(rail)], { duration: 400, easing: "ease-in-out" });
      grow(highest.after, place(highest.before));
      grow(factor.kept, { left: "0%", width: "100%" });
      sums.forEach((rails) => {
        grow(rails.kept, place(rails.before));
        grow(rails.added, { ...place(rails.added), width: "0%" });
        grow(rails.after, place(rails.before));
      });
    }
  }

  function finish() {
    root.getAnimations({ subtree: true }).forEach((each) => each.finish());
  }

  /** Play: a step, and after a while the next. */
  function turn() {
    timer = 0;
    const { at, last } = state();
    go(min(at + 1, last));
    timer = at + 1 < last ? setTimeout(turn, 2600) : null;
    draw();
  }

  function halt() {
    clearTimeout(timer);
    timer = null;
    finish();
    draw();
  }

  draw();
  const stop = follow(model, [...STATES, "_range"], draw);
  return () => {
    halt();
    stop();
  };
}

export default { render };
