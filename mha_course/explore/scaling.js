// Three ways to scale dot products: the scores spread, the softmax sharpens, its gradient falls.

import { choice, clip, each, follow, frame, goals, handle, make, reset, say, sender, set, show, softmax } from "./shared.js";

const SAMPLES = 256;
const MOST = 512; // the columns of a sample; the first d_k of them are used
const WIDTHS = [2, 8, 32, 128, 512]; // where the learner's line has its points
const steps = (n) => [...new Set(each(8 * n + 1, (i) => Math.round(2 ** (1 + i / n))))];
const [COARSE, FINE] = [steps(8), steps(16)]; // where curves are computed
const LIMIT = 0.5; // the largest gradient: of two weights of 1/2
const SCALES = { // name, factor, end of the axis
  "no scale": ["no scale", () => 1, 100],
  "1/sqrt(d_k)": ["1/√d_k", (d_k) => 1 / Math.sqrt(d_k), 5],
  "1/d_k": ["1/d_k", (d_k) => 1 / d_k, 5],
};

/** 32 bits, well mixed; _scaling.py has the same. */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** The dot products of one sample: [d_k][key]. A sample has standard normal numbers: a row for the query, one for each key. */
export function products({ seed, n_k, sample }) {
  const start = mix(seed + 1);
  const uniform = (i) => (mix(start + Math.imul(i, 0x9e3779b9)) + 0.5) / 2 ** 32;
  const normal = (i) => Math.sqrt(-2 * Math.log(uniform(2 * i))) * Math.cos(2 * Math.PI * uniform(2 * i + 1));
  const entry = (row, column) => normal((sample * (n_k + 1) + row) * MOST + column);
  const sums = [Array(n_k).fill(0)];
  for (let c = 0; c < MOST; c += 1) {
    const q = entry(0, c);
    sums.push(sums[c].map((sum, j) => sum + q * entry(j + 1, c)));
  }
  return sums;
}

/** The numbers of one sample. The gradient is diag(w) − w wᵀ. */
export function compute(sums, d_k, scale) {
  const factor = SCALES[scale][1](d_k);
  const scores = sums[d_k].map((product) => product * factor);
  const weights = softmax(scores);
  const squares = weights.map((w, i) => weights.reduce((sum, v, j) => sum + (w * ((i === j) - v)) ** 2, 0));
  return { factor, scores, weights, gradient: Math.sqrt(squares.reduce((a, b) => a + b, 0)) };
}

/** The gradient's size, as the mean of samples. */
export function mean(samples, d_k, scale) {
  return samples.reduce((total, sums) => total + compute(sums, d_k, scale).gradient, 0) / samples.length;
}

/** The learner's line at any d_k: straight between its points, on the axis of the picture. */
export function between(values, d_k) {
  const at = Math.log2(d_k) / 2 - 0.5;
  const i = Math.min(Math.floor(at), WIDTHS.length - 2);
  return values[i] + (values[i + 1] - values[i]) * (at - i);
}

const across = (d_k) => (100 * (Math.log2(d_k) - 1)) / 8; // % of the chart's width
const down = (gradient) => 100 * (1 - gradient / LIMIT);
const path = (widths, values) => widths.map((d_k, i) => `${i ? "L" : "M"}${across(d_k)} ${down(values[i])}`).join("");

const LOOK = `
.mha.dk {
& { font-variant-numeric: tabular-nums; } .lay { display: grid; gap: 12px 24px; margin: 8px 0; } .lay > * { min-width: 0; }
.line { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; } .line b { min-width: 5.6em; }
.slide { position: relative; flex: 1 1 200px; min-width: 0; height: 44px; } input[type=range] { width: 100%; height: 100%; margin: 0; touch-action: pan-y; }
.handle { position: absolute; top: 0; width: 44px; height: 44px; cursor: ew-resize; touch-action: pan-y; } @media (any-pointer: coarse) { input[type=range] { pointer-events: none; } }
button { margin-bottom: 0; }
table { width: 100%; table-layout: fixed; } :is(th, td) { padding: 3px 4px; } thead th { text-align: left; }
.name { width: 66px; white-space: nowrap; } .number { width: 60px; } .short { width: 48px; } .wide { width: 18%; }
.rail { position: relative; height: 18px; border-left: 1px solid var(--line); border-right: 1px solid var(--line); }
.rail * { position: absolute; } .zero { left: 50%; top: 0; bottom: 0; border-left: 1px solid var(--line); }
.band { top: 0; bottom: 0; background: color-mix(in srgb, var(--line) 35%, transparent); } .spot { top: 4px; width: 10px; height: 10px; margin-left: -5px; background: var(--key); }
tfoot td { font-size: 12px; } .ends { display: flex; justify-content: space-between; } .ends > * { width: 0; display: flex; justify-content: center; white-space: nowrap; }
.ends > :first-child { justify-content: flex-start; } .ends > :last-child { justify-content: flex-end; }
.track { width: auto; } .bar { min-width: 0; }
.chart { position: relative; height: 290px; padding: 22px 66px 42px 46px; } .field { position: relative; height: 100%; }
.field svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; } path { fill: none; vector-effect: non-scaling-stroke; }
.field > span { position: absolute; font-size: 12px; white-space: nowrap; pointer-events: none; }
.x { top: 100%; transform: translate(-50%, 8px); } .y { right: 100%; transform: translate(-16px, -50%); } .field > .axis { transform: translate(-50%, 24px); }
.end { left: calc(100% + 12px); transform: translateY(-50%); } .above { transform: translateY(-85%); } .below { transform: translateY(-5%); }
.point { position: absolute; width: 44px; height: 44px; transform: translate(-50%, -50%); border-radius: 50%; cursor: ns-resize; touch-action: none;
  background: radial-gradient(var(--ground) 6px, currentColor 7px 9px, transparent 10px); }
.point[aria-disabled=true] { border-style: none; opacity: 1; touch-action: auto; }
.open .field { cursor: crosshair; } .now { position: absolute; width: 12px; height: 12px; border-radius: 50%; background: var(--accent); box-shadow: 0 0 0 2px var(--ground); transform: translate(-50%, -50%); pointer-events: none; }
[hidden] { display: none; } .legend { display: flex; flex-wrap: wrap; gap: 2px 16px; padding: 0; margin: 0 0 6px; list-style: none; } .legend svg { width: 34px; height: 12px; vertical-align: middle; margin-right: 6px; }
.read { min-height: 4.2em; }
@container mha (width >= 680px) { .lay { grid-template: auto 1fr / 1fr 1fr; } .gradient { grid-area: 1 / 2 / 3; } }
@container mha (width < 640px) { .formula { min-height: 2.8em; } .read { min-height: 5.6em; } }
}`;
const [CLEAR, LOCKED] = ["Clear and predict again", "The points are locked now. To move them, press 'Clear and predict again'."];
const LINES = { // how each is drawn
  yours: { stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "6 5" },
  mean: { stroke: "var(--accent)", "stroke-width": 3.5 },
  one: { stroke: "var(--accent)", "stroke-width": 1.5 },
  other: { stroke: "var(--line)", "stroke-width": 2 },
};

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const taken = []; // samples, each when it is needed
  const sums = (sample = get("sample")) => (taken[sample] ??= products({ seed: get("seed"), n_k: get("n_k"), sample }));
  const average = (d_k, scale) => mean(each(SAMPLES, (sample) => sums(sample)), d_k, scale);
  const here = () => compute(sums(), get("d_k"), get("scale"));
  const send = sender(model, el);
  const { root, speak } = frame(el, "Explorable: three ways to scale the scores");
  const state = () => ({ d_k: get("d_k"), scale: get("scale"), drawn: get("drawn"), shown: get("shown") });
  const yours = () => get("drawn")[get("scale")] ?? Array(5).fill(LIMIT / 2);
  const moved = () => yours().filter((value) => value !== LIMIT / 2).length;
  const open = () => !get("shown").includes(get("scale"));
  const warn = (text) => { say(read, text); speak(text); };

  // What is chosen
  const scales = choice("score = scale × (● query · ■ key)", Object.entries(SCALES).map(([name, [text]]) => [name, text]), (scale) => { send({ _scale: scale }); tell(); });
  const slider = make("input", {
    type: "range", min: 1, max: 9, step: 1 / 16, "aria-label": "d_k", onchange: tell,
    oninput: ({ target }) => { // logarithmic; each step is 1 at least
      const [before, now] = [get("d_k"), Math.round(2 ** target.valueAsNumber)];
      const way = Math.sign(target.valueAsNumber - Number(target.dataset.at));
      send({ _d_k: clip(now === before ? before + way : now, 2, MOST) });
      draw();
    },
  });
  const knob = handle(() => {
    slider.focus({ preventScroll: true });
    return [get("d_k"), slider.clientWidth - 16]; // less the width of its thumb
  }, (way, [d_k, long]) => {
    send({ _d_k: Math.round(2 ** clip(Math.log2(d_k) + (8 * way) / long, 1, 9)) });
    draw();
  }, ([d_k], scrolls) => {
    if (scrolls) send({ _d_k: d_k });
    draw();
    tell();
  });
  const width = make("b");
  const other = make("button", { type: "button", onclick: () => { send({ _sample: (get("sample") + 1) % SAMPLES }); tell(); } }, "Other sample");
  const which = make("span");
  const formula = make("p", { class: "formula" });

  // Scores and weights: a row for each key
  const rows = sums()[0].map((_, j) => {
    const [score, weight] = [make("td"), make("td")];
    const [band, mark, bar] = ["band", "spot", "bar"].map((name) => make("div", { class: name }));
    const rail = make("div", { class: "rail" }, band, make("div", { class: "zero" }), mark);
    const line = make("tr", {}, make("th", { scope: "row" }, `■ key ${j}`), make("td", {}, rail), score, make("td", {}, make("div", { class: "track" }, bar)), weight);
    return { score, weight, band, mark, bar, line };
  });
  const ends = (...texts) => make("td", {}, make("div", { class: "ends" }, ...texts.map((text) => make("span", {}, text))));
  const reaches = [make("span"), make("span")];
  const head = (text, name, columns) => make("th", { scope: columns ? "colgroup" : "col", class: name, colspan: columns }, text);
  const table = make("table", {},
    make("colgroup", {}, ...["name", "", "number", "wide", "short"].map((name) => make("col", { class: name }))),
    make("thead", {}, make("tr", {}, head("■ key"), head("score", "", 2), head("weight", "", 2))),
    make("tbody", {}, ...rows.map(({ line }) => line)),
    make("tfoot", { "aria-hidden": "true" }, make("tr", {}, make("td"), ends(reaches[0], "0", reaches[1]), make("td"), ends("0", "1"), make("td"))));

  // The chart: lines, words over them, points to drag
  const line = (kind, more = {}) => make("path", { ...LINES[kind], ...more });
  const [place, guess, one, middle] = [line("other", { "stroke-dasharray": "2 3", "stroke-width": 1 }), line("yours"), line("one"), line("mean")];
  const others = Object.keys(SCALES).map((scale, i) => {
    const name = make("span", { class: `end ${["", "above", "below"][i]}`, "aria-hidden": "true" }, SCALES[scale][0]);
    return { scale, d: "", name, path: line("other") };
  });
  const svg = make("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
    make("path", { d: "M0 0V100H100", stroke: "var(--line)" }), place, ...others.map(({ path }) => path), one, middle, guess);
  const label = (name, style, text) => make("span", { class: name, style, "aria-hidden": "true" }, text);
  const points = WIDTHS.map((d_k, i) => make("div", {
    class: "point", role: "slider", tabindex: 0, "aria-orientation": "vertical", "aria-label": `your prediction at d_k = ${d_k}`, "aria-valuemin": 0, "aria-valuemax": LIMIT,
    onkeydown: (event) => {
      const step = { ArrowUp: 0.01, ArrowRight: 0.01, ArrowDown: -0.01, ArrowLeft: -0.01, PageUp: 0.1, PageDown: -0.1, Home: -1, End: 1, " ": 0 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      if (open()) put(i, yours()[i] + step);
      else warn(LOCKED);
    },
  }));
  const now = make("div", { class: "now" });
  const field = make("div", { class: "field" }, svg,
    ...WIDTHS.map((d_k) => label("x", `left: ${across(d_k)}%`, d_k)), label("x axis", "left: 50%", "d_k"),
    ...[0, 0.1, 0.2, 0.3, 0.4, 0.5].map((y) => label("y", `top: ${down(y)}%`, y)), ...others.map(({ name }) => name), ...points, now);
  const chart = make("div", { class: "chart" }, field);
  const key = (kind, text) => make("li", {}, make("svg", { "aria-hidden": "true" }, make("path", { d: "M0 6H34", ...LINES[kind] })), text);
  const revealed = [key("mean", `mean size, ${SAMPLES} samples`), key("one", "this sample")];
  const legend = make("ul", { class: "legend" }, key("yours", "your prediction"), ...revealed);
  const read = make("p", { class: "read" });
  const why = make("p", {}, `With 1/d_k, the gradient does not become small. But when d_k grows, every weight comes close to 1/${rows.length}, whatever the keys are. The head then ignores the keys. So 1/d_k is too small.`);
  const commit = make("button", { type: "button", onclick: () => {
    const { scale, drawn, shown } = state();
    if (open() && moved() < 2) return warn("Move at least two points first.");
    if (open()) send({ _shown: [...shown, scale] });
    else {
      const { [scale]: _, ..._drawn } = drawn;
      send({ _shown: shown.filter((one) => one !== scale), _drawn });
      return speak("Your prediction is cleared.");
    }
    const told = (values) => values.map((x, i) => `${show(x)} at ${WIDTHS[i]}`).join(", ");
    speak(`Mean size of ${SAMPLES} samples: ${told(WIDTHS.map((d_k) => average(d_k, scale)))}. Your prediction: ${told(yours())}.`);
  } });

  /** The learner's line has this value at this point. */
  function put(i, value) {
    send({ _drawn: { ...get("drawn"), [get("scale")]: yours().with(i, Number(clip(value, 0, LIMIT).toFixed(4))) } });
  }

  // Beside the points, a mouse draws across the chart, and a finger's swipe scrolls the page.
  let held = null;
  const drag = ({ clientX, clientY }) => {
    const box = field.getBoundingClientRect();
    const nearest = Math.round(clip((clientX - box.left) / box.width) * (WIDTHS.length - 1));
    put(held.point ?? nearest, LIMIT * (1 - (clientY - held.off - box.top) / box.height));
  };
  chart.addEventListener("pointerdown", (event) => {
    const [point, mouse] = [points.indexOf(event.target), event.pointerType === "mouse"];
    if (event.button > 0 || (point < 0 && !mouse)) return;
    event.preventDefault();
    if (point >= 0) points[point].focus({ preventScroll: true });
    if (!open()) return warn(LOCKED);
    const box = points[Math.max(point, 0)].getBoundingClientRect();
    held = point < 0 ? { off: 0 } : { point, off: event.clientY - box.top - box.height / 2 };
    chart.setPointerCapture(event.pointerId);
    if (point < 0) drag(event);
  });
  chart.addEventListener("pointermove", (event) => { if (held) drag(event); });
  chart.addEventListener("lostpointercapture", () => { held = null; });

  const tries = goals([
    ["With no scale, give one key a weight over 0.99.", ({ scale, weights }) => scale === "no scale" && Math.max(...weights) > 0.99],
    ["At a d_k of 100 or more, make the largest and the smallest weight differ by less than 0.1.", ({ d_k, weights }) => d_k >= 100 && Math.max(...weights) - Math.min(...weights) < 0.1],
    ["For all three, move at least two points, and show the curve.", ({ shown }) => shown.length === 3],
  ], { ...state(), ...here() });
  const again = reset(model, ["_sample", "_d_k", "_scale", "_drawn", "_shown"], send, () => {
    tries.clear();
    draw();
    tell();
  });
  root.classList.add("dk");
  root.append(make("style", {}, LOOK), make("p", {}, "Drag d_k, or select it and use the arrow keys. The entries of the ● query and of the ■ keys are random, with mean 0 and variance 1."),
    scales.group, make("div", { class: "line" }, width, make("div", { class: "slide" }, slider, knob)), formula,
    make("div", { class: "lay" },
      make("div", {}, table, make("p", {}, "Grey: one standard deviation on each side of 0. The axis ends at ±100 with no scale, and at ±5 with the other two."), make("div", { class: "line" }, other, which)),
      make("div", { class: "gradient" }, make("p", {}, make("b", {}, "Size of the gradient"), " of the weights w with respect to the scores, which are already scaled. This gradient is the matrix diag(w) − w wᵀ. To get its size, square all entries, add the squares, and take the square root."), chart, legend, commit, read, why),
      make("div", {}, tries.node, again)));

  function draw() {
    const { d_k, scale, shown } = state();
    const { factor, scores, weights, gradient } = here();
    const reach = SCALES[scale][2];
    const spread = Math.sqrt(d_k) * factor;
    scales.pick(scale);
    slider.value = Math.log2(d_k);
    slider.dataset.at = slider.value;
    set(slider, { "aria-valuetext": d_k });
    set(knob, { style: `left: calc(${across(d_k) / 100} * (100% - 16px) - 14px)` });
    say(width, `d_k = ${d_k}`);
    say(which, `sample ${get("sample") + 1} of ${SAMPLES}`);
    say(formula, `scale = ${scale === "no scale" ? "1" : `${SCALES[scale][0]} = ${show(factor, 3)}`}. Standard deviation of a score: √d_k × scale = ${show(spread)}.`);
    reaches.forEach((end, i) => say(end, show(i ? reach : -reach, 0)));
    rows.forEach(({ score, weight, band, mark, bar }, j) => {
      say(score, show(scores[j]));
      say(weight, show(weights[j], 3));
      set(band, { style: `left: ${50 - (50 * spread) / reach}%; right: ${50 - (50 * spread) / reach}%` });
      set(mark, { style: `left: ${50 + 50 * clip(scores[j] / reach, -1)}%` });
      set(bar, { style: `width: ${100 * weights[j]}%` });
    });
    const hidden = open();
    const line = yours();
    set(chart, { class: hidden ? "chart open" : "chart" });
    set(place, { d: `M${across(d_k)} 0V100` });
    set(guess, { d: path(WIDTHS, line) });
    points.forEach((point, i) => set(point, {
      style: `left: ${across(WIDTHS[i])}%; top: ${down(line[i])}%`, "aria-disabled": !hidden,
      "aria-valuenow": line[i], "aria-valuetext": show(line[i]),
    }));
    others.forEach((it) => {
      const seen = shown.includes(it.scale);
      if (seen && !it.d) {
        it.d = path(COARSE, COARSE.map((width) => average(width, it.scale)));
        set(it.name, { style: `top: ${down(average(MOST, it.scale))}%` });
      }
      set(it.path, { d: seen && it.scale !== scale ? it.d : "" });
      if (it.scale === scale) set(middle, { d: seen ? it.d : "" });
      it.name.hidden = !seen;
    });
    set(one, { d: hidden ? "" : path(FINE, FINE.map((width) => compute(sums(), width, scale).gradient)) });
    [now, ...revealed].forEach((part) => { part.hidden = hidden; });
    set(now, { style: `left: ${across(d_k)}%; top: ${down(gradient)}%` });
    say(commit, hidden ? "Show the curve" : CLEAR);
    say(read, hidden ? `Predict, with ${SCALES[scale][0]}: how does this size change when d_k grows? ${moved() > 1 ? "Then show the curve." : "Drag the five points up or down. Or select one and use the arrow keys."}`
      : `At d_k = ${d_k}, the size is ${show(gradient, 3)} for this sample. One sample can differ much from the mean. The mean size of ${SAMPLES} samples is ${show(average(d_k, scale), 3)}. Your prediction: ${show(between(line, d_k), 3)}.`);
    why.hidden = !shown.includes("1/d_k");
    tries.look({ ...state(), weights });
  }

  function tell() {
    const { d_k, scale } = state();
    const { scores, weights } = here();
    const most = weights.indexOf(Math.max(...weights));
    speak(`d_k ${d_k}, ${SCALES[scale][0]}. Scores from ${show(Math.min(...scores))} to ${show(Math.max(...scores))}. Largest weight: key ${most}, ${show(weights[most])}. ${open() ? "" : read.textContent}`);
  }

  draw();
  return follow(model, ["_sample", "_d_k", "_scale", "_drawn", "_shown"], draw);
}

export default { render };
