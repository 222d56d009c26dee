// A matrix that is written to and erased, token by token, and what a query reads in it; beside it the cache of softmax attention.

import { add, choice, clip, dot, each, fill, follow, frame, goals, leap, make, paces, reset, say, sender, set, shade, show, softmax, wide } from "./shared.js";

const TEXT = {
  name: "Explorable: a state that is written to and erased, beside a cache",
  intro: "Each token writes one pair: a value under a key. ■ is a key, ▲ a value, ● a query.",
  tape: "the text", again: "Start again", rule: "rule", rules: { adds: "adds", decays: "decays", delta: "delta rule" }, decay: "decay", rate: "rate", query: "● the key that reads",
  before: "S before", faded: "decay · S", erased: "− erased", written: "+ written", now: "= S now", finds: "■ finds", reads: "● reads",
  state: "The state", cache: "The cache", columns: ["■ key", "▲ value", "weight"], both: "● {key} reads", inState: "in the state", inCache: "in the cache",
  pair: "{key}: {value}", token: "{key}: {value}.", key: "■ {key} {k}", value: "▲ {value} {v}",
  newest: "newest value", newestIs: "newest value: {value}", unwritten: "not written yet",
  kept: "Kept: the state has d_k · d_v = {k} · {v} = {state} numbers, and the cache has n · (d_k + d_v) = {n} · ({k} + {v}) = {cache}.",
  rounded: "Numbers are rounded. In the cache, weights = softmax(scale · ■ keys · ● query), and the scale is {scale}.",
  start: "No token is read yet. S is 0, and the cache is empty. Press Next.",
  fades: "First, S fades: each number is multiplied by {decay:2}.", lasts: "The decay is 1, so nothing fades.",
  adds: "The value is added under the key. Nothing is erased.", empty: "The key finds 0. Nothing is erased.",
  erases: "The key finds {found}. Of it, the part {rate:2} is erased.", erasesAll: "The key finds {found}. All of it is erased.",
  writes: "Of the value, the part {rate:2} is written.", writesAll: "The whole value is written.",
  own: "Its own key, {label}, now reads {now}.", told: "{words} {key} reads {here} in the state, {there} in the cache.",
  formula: {
    adds: "S ← S + ■ {k}ᵀ ▲ {v}",
    decays: "S ← {decay:2} · S + ■ {k}ᵀ ▲ {v}",
    delta: "found = ■ {k} ({decay:2} · S) = {found}\nS ← {decay:2} · S + ■ {k}ᵀ · {rate:2} · (▲ {v} − {found})",
  },
  aims: [
    "After two tokens or more, let the state and the cache read the same (up to 0.05).",
    "Choose “decays”, and read all tokens. Find a decay with which the newest key reads its newest value (up to 0.05).",
  ],
  forgotten: "Now let another key read.",
};
const { abs, max } = Math;

/** What the vector x reads in the matrix S: x S. */
export function read(x, S) {
  return add(S.map((row, r) => row.map((cell) => x[r] * cell)));
}

/** The columns x times the row y. */
export function outer(x, y) {
  return x.map((a) => y.map((b) => a * b));
}

/** What each token does to S; first, what is there before them. `faded` is decay · S. In it the key finds `found`;
 * `erased` and `written` are the parts of it and of the value that the rate says. */
export function compute({ keys, values, rule, decay, rate }) {
  const none = values[0].map(() => 0);
  const [kept, part] = [rule === "adds" ? 1 : decay, rule === "delta" ? rate : 1];
  let S = outer(keys[0], none);
  const steps = [{ key: keys[0], value: none, faded: S, found: none, erased: none, written: none, S }];
  keys.forEach((key, i) => {
    const faded = S.map((row) => row.map((x) => kept * x));
    const found = rule === "delta" ? read(key, faded) : none;
    const [erased, written] = [found, values[i]].map((row) => row.map((x) => part * x));
    S = faded.map((row, r) => row.map((x, c) => x + key[r] * (written[c] - erased[c])));
    steps.push({ key, value: values[i], faded, found, erased, written, S });
  });
  return steps;
}

/** Softmax attention of a query over the tokens that are read: weights and output; nothing is 0. */
export function attend({ keys, values, at, query, scale }) {
  const weights = softmax(keys.slice(0, at).map((key) => scale * dot(keys[query], key)));
  return { weights, output: values[0].map((_, c) => dot(weights, values.slice(0, at).map((value) => value[c]))) };
}

const pairOf = ([key, value]) => ({ key, value });
const same = (a, b) => a.every((x, c) => x === b[c]);
const near = (a, b) => a.every((x, c) => abs(x - b[c]) <= 0.05);
const whole = (x) => show(x, Number.isInteger(x) ? 0 : 2);
const row = (numbers, text = show) => (numbers.length === 1 ? text(numbers[0]) : `(${numbers.map((x) => text(x)).join(",\u00a0")})`);

const AIMS = [
  ({ at, here, there }) => at > 1 && near(here, there),
  ({ rule, at, last, step, keys, query }) => rule === "decays" && at === last && same(keys[query], step.key) && near(read(step.key, step.S), step.value),
].map((met, i) => [TEXT.aims[i], met, ...(i ? [TEXT.forgotten] : [])]);

/** What the last token did, in words. */
export function explain({ at, step, rule, decay, rate, names }) {
  if (!at) return TEXT.start;
  const own = fill(TEXT.own, { label: names[at - 1][0], now: row(read(step.key, step.S)) });
  const said = rule === "delta" ? [step.found.every((x) => abs(x) < 0.005) ? TEXT.empty : fill(rate === 1 ? TEXT.erasesAll : TEXT.erases, { found: row(step.found), rate }), fill(rate === 1 ? TEXT.writesAll : TEXT.writes, { rate })] : [TEXT.adds];
  const fades = rule === "decays" || (rule === "delta" && decay < 1) ? [fill(decay < 1 ? TEXT.fades : TEXT.lasts, { decay })] : [];
  return [fill(TEXT.token, pairOf(names[at - 1])), ...fades, ...said, own].join(" ");
}

const STATES = ["_step", "_rule", "_decay", "_rate", "_query"];
const MIX = "color-mix(in srgb, var(--tone) calc(60% * var(--share)), var(--ground))"; // text is readable on it
const LOOK = `
.mem {
.lay { display: grid; gap: 4px 24px; } .lay > * { min-width: 0; } .title { font-weight: 600; }
.tape { display: flex; flex-wrap: wrap; gap: 4px; list-style: none; padding: 0; margin: 8px 0; } .tape li { margin: 0; padding: 2px 8px; border: 1px dashed var(--line); border-radius: 4px; overflow-wrap: anywhere; }
.tape .read { border-style: solid; } .tape .now { border: 2px solid var(--accent); padding: 1px 7px; font-weight: 700; }
.line { display: flex; flex-wrap: wrap; align-items: center; gap: 0 16px; } .slide { display: flex; align-items: center; gap: 8px; font-variant-numeric: tabular-nums; } .slide[hidden] { display: none; }
.slide input { width: 130px; height: max(28px, var(--target)); margin: 0; touch-action: pan-y; }
.words { min-height: 4.2em; font-weight: 600; } .formula { min-height: 2.8em; white-space: pre-line; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.boards { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: flex-start; } .later { visibility: hidden; } [hidden] { display: none; }
.board { border-collapse: separate; border-spacing: 2px; table-layout: fixed; } .board caption { font-weight: 600; }
.board :is(th, td) { width: 56px; height: 26px; padding: 2px 4px; font-size: 13px; border: 0; white-space: nowrap; } .board th[scope=row] { width: 58px; text-align: right; }
.board td.cell { --tone: var(--plus); background: ${MIX}; } .board td.minus { --tone: var(--minus); } .board.result td.cell { outline: 1px solid var(--line); outline-offset: -1px; }
tfoot :is(th, td), .both :is(th, td) { font-weight: 600; } .tones { width: 120px; height: 12px; display: inline-block; vertical-align: middle; border: 1px solid var(--line); background: linear-gradient(90deg, color-mix(in srgb, var(--minus) 60%, var(--ground)), var(--ground), color-mix(in srgb, var(--plus) 60%, var(--ground))); }
.cache th:first-child, .both th { text-align: left; overflow-wrap: anywhere; } .cache td { white-space: nowrap; } .cache :is(td, th) { padding: 2px 6px; }
@container mha (width < 640px) { .boards { gap: 8px; } .board :is(th, td) { width: 47px; padding: 2px; } .board th[scope=row] { width: 54px; } }
@container mha (width >= 760px) { .lay { grid-template-columns: minmax(0, 5fr) minmax(0, 4fr); } }
}`;

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const [keys, values, scale] = ["keys", "values", "scale"].map(get);
  const [n, d_k, d_v] = [keys.length, keys[0].length, values[0].length];
  const names = keys.map((_, i) => [get("key_labels")[i], get("value_labels")[i]]);
  const given = { keys, values, scale, names, last: n };
  const limit = max(1e-9, ...values.flat().map(abs)); // the colours end here, and keep their meaning
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  const state = () => {
    const chosen = { rule: get("rule"), decay: get("decay"), rate: get("rate"), query: get("query"), at: get("step") };
    const step = compute({ ...given, ...chosen })[chosen.at];
    const { weights, output } = attend({ ...given, ...chosen });
    return { ...given, ...chosen, step, weights, here: read(keys[chosen.query], step.S), there: output };
  };
  const act = (states, aloud = true) => {
    send(states);
    draw();
    if (aloud) tell();
  };

  // Controls
  const tape = names.map((pair) => make("li", {}, fill(TEXT.pair, pairOf(pair))));
  const go = (step) => act({ _step: clip(step, 0, n) });
  const pace = paces((way) => go(get("step") + way));
  const first = make("button", { type: "button", onclick: () => go(0) }, TEXT.again);
  const rules = choice(TEXT.rule, Object.entries(TEXT.rules), (rule) => act({ _rule: rule }));
  const sliders = ["decay", "rate"].map((name) => {
    const put = (x, aloud) => act({ [`_${name}`]: Number(clip(x).toFixed(2)) }, aloud);
    const [input, text] = [make("input", {
      type: "range", min: 0, max: 1, step: 0.01, "aria-label": TEXT[name],
      oninput: () => put(input.valueAsNumber, false), onchange: () => tell(), onkeydown: (event) => leap(event, 0.05, 0.25, (way) => put(get(name) + way)),
    }), make("span")];
    return { name, input, text, node: make("div", { class: "slide" }, `${TEXT[name]} `, input, text) };
  });
  const own = each(n, (i) => i).filter((i) => keys.findIndex((key) => same(key, keys[i])) === i); // each key once
  const asks = choice(TEXT.query, own.map((i) => [i, names[i][0]]), (query) => act({ _query: query }));

  // The matrices: numbers beside the rows, perhaps above the columns, and what is read in them below.
  const board = (kind, { top, foot }) => {
    const line = () => each(d_v, () => make("td"));
    const [title, side, cells] = [make("caption"), each(d_k, () => make("th", { scope: "row" })), each(d_k, () => each(d_v, () => make("td", { class: "cell" })))];
    const [above, below, name] = [line(), line(), make("th", { scope: "row" }, foot ?? "")];
    const node = make("table", { class: `board ${kind}` }, title, top ? make("thead", {}, make("tr", {}, make("td", {}, "▲"), ...above)) : null,
      make("tbody", {}, ...cells.map((row, r) => make("tr", {}, side[r], ...row))), foot ? make("tfoot", {}, make("tr", {}, name, ...below)) : null);
    const put = (text, beside, numbers, edge) => {
      say(title, text);
      beside.forEach((x, r) => say(side[r], x));
      numbers.forEach((row, r) => row.forEach((x, c) => {
        say(cells[r][c], show(x));
        set(cells[r][c], { class: `cell ${x < 0 ? "minus" : ""}` });
        cells[r][c].style.setProperty("--share", clip(abs(x) / limit).toFixed(3));
      }));
      edge.forEach((x, c) => say((top ? above : below)[c], show(x)));
    };
    return { node, put, foot: below[0].parentElement };
  };
  const boards = { faded: board("before", { foot: TEXT.finds }), erased: board("less", { top: true }), written: board("more", { top: true }), now: board("result", { foot: TEXT.reads }) };
  const formula = make("p", { class: "formula" });
  const words = make("p", { class: "words" });

  // The cache, and what both read
  const lines = names.map(([key, value], i) => {
    const weight = make("td");
    return { weight, node: make("tr", {}, make("th", { scope: "row" }, fill(TEXT.key, { key, k: row(keys[i], whole) })), make("td", {}, fill(TEXT.value, { value, v: row(values[i], whole) })), weight) };
  });
  const heads = make("tr", {}, ...TEXT.columns.map((text) => make("th", { scope: "col" }, text)));
  const cache = make("table", { class: "cache" }, make("thead", {}, heads), make("tbody", {}, ...lines.map(({ node }) => node)));
  const [who, newest, ...told] = [make("caption"), make("th", { scope: "row" }), ...each(3, () => make("td"))];
  const head = (text) => make("th", { scope: "row" }, text);
  const both = make("table", { class: "both" }, who, make("tbody", {}, ...[[head(TEXT.inState), told[0]], [head(TEXT.inCache), told[1]], [newest, told[2]]].map((pair) => make("tr", {}, ...pair))));
  const kept = make("p", { class: "kept" });
  const aims = goals(AIMS, state());
  const again = reset(model, STATES, send, () => {
    aims.clear();
    act({});
  });
  root.classList.add("mem");
  root.append(make("style", {}, LOOK), make("p", {}, TEXT.intro), make("ol", { class: "tape", "aria-label": TEXT.tape }, ...tape),
    make("div", { class: "line" }, make("div", {}, pace.back, pace.next, first), pace.why), rules.group, make("div", { class: "line" }, ...sliders.map(({ node }) => node)), words, formula,
    make("div", { class: "lay" },
      make("div", {}, make("p", { class: "title" }, TEXT.state), make("div", { class: "boards" }, ...Object.values(boards).map(({ node }) => node)),
        make("p", {}, `≤ ${whole(-limit)} `, make("span", { class: "tones" }), ` ≥ ${whole(limit)}`)),
      make("div", {}, make("p", { class: "title" }, TEXT.cache), wide(cache), asks.group, both, kept)),
    make("p", {}, fill(TEXT.rounded, { scale: whole(scale) })), aims.node, again);

  function draw() {
    const now = state();
    const { at, step, rule, decay, rate, query, weights, here, there } = now;
    const delta = rule === "delta";
    tape.forEach((token, i) => {
      set(token, { class: i === at - 1 ? "now" : i < at ? "read" : "" });
      if (i === at - 1) set(token, { "aria-current": "step" });
      else token.removeAttribute("aria-current");
    });
    pace.at(at === 0, at === n);
    rules.pick(rule);
    asks.pick(own.find((i) => same(keys[i], keys[query])));
    for (const { name, input, text, node } of sliders) {
      node.hidden = name === "rate" ? !delta : rule === "adds";
      input.value = get(name);
      set(input, { "aria-valuetext": show(get(name)) });
      say(text, show(get(name)));
    }
    say(words, explain(now));
    say(formula, at ? fill(TEXT.formula[rule], { k: row(step.key, whole), v: row(step.value, whole), decay, rate, found: row(step.found) }) : "");
    const beside = step.key.map((x) => `■ ${show(x)}`);
    boards.faded.put(rule === "adds" ? TEXT.before : TEXT.faded, beside, step.faded, step.found);
    boards.erased.put(TEXT.erased, beside, outer(step.key, step.erased), step.erased);
    boards.written.put(TEXT.written, beside, outer(step.key, step.written), step.written);
    boards.now.put(TEXT.now, keys[query].map((x) => `● ${show(x)}`), step.S, here);
    for (const { node } of [boards.faded, boards.erased, boards.written]) node.classList.toggle("later", !at);
    boards.faded.foot.hidden = boards.erased.node.hidden = !delta;
    lines.forEach(({ node, weight }, i) => {
      node.classList.toggle("later", i >= at);
      say(weight, i < at ? show(weights[i], 3) : "");
      shade(weight, i < at ? weights[i] : null);
    });
    const latest = each(at, (i) => i).findLast((i) => same(keys[i], keys[query]));
    say(who, fill(TEXT.both, { key: names[query][0] }));
    say(newest, latest === undefined ? TEXT.newest : fill(TEXT.newestIs, { value: names[latest][1] }));
    [row(here), row(there), latest === undefined ? TEXT.unwritten : `▲ ${row(values[latest], whole)}`].forEach((text, i) => say(told[i], text));
    say(kept, fill(TEXT.kept, { n: at, k: d_k, v: d_v, state: d_k * d_v, cache: at * (d_k + d_v) }));
    aims.look(now);
  }

  function tell() {
    const { here, there, query } = state();
    speak(fill(TEXT.told, { words: words.textContent, key: names[query][0], here: row(here), there: row(there) }));
  }

  draw();
  return follow(model, STATES, draw);
}

export default { render };
