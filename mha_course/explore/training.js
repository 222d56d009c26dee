// Scrub through a training: losses, weights and answers after each recorded step, for each seed.

import { choice, clip, fill, follow, frame, goals, handle, make, reset, say, scale, sender, set, shade, show, thumb } from "./shared.js";

const TEXT = {
  name: "Explorable: a training, step by step",
  intro: "Drag the marker or the slider, or select the slider and use the arrow keys. Each seed is another training. The tables show {n} example problems; “{record}” is a record with the name {name} and the content {content}. Losses, percentages and mean weights are from other problems, kept for testing.",
  introOne: "Drag the marker or the slider, or select the slider and use the arrow keys. Each seed is another training. The tables show an example problem; “{record}” is a record with the name {name} and the content {content}. Losses, percentages and mean weights are from other problems, kept for testing.",
  bothPrefer: "Find a seed and a step at which both heads of “{name}” prefer the record asked for first, or both prefer the record asked for second. (Here, a head prefers a record if its mean weight there is larger by 0.02 or more.)",
  allPrefer: "Find a seed and a step at which all heads of “{name}” prefer the record asked for first, or all prefer the record asked for second. (Here, a head prefers a record if its mean weight there is larger by 0.02 or more.)",
  solve: "Find the first recorded step with only ✓ below “{name}”. Then look at its percentage in the test problems.",
  second: "Go to the last step. Find a seed with which head 0 of “{name}” prefers the record asked for second.",
  half: "ln {n} = {loss:2}: the loss of a model that gives the probability 1/{n} to each of the {n} contents asked for",
  one: "{name}: loss {loss}, answer right in {right:0}\u00a0% of the test problems",
  two: "{name}: loss {loss}, both answers right in {right:0}\u00a0% of the test problems",
  all: "{name}: loss {loss}, all answers right in {right:0}\u00a0% of the test problems",
  mean: "mean weight in the test problems: asked {weights}", weight: "{place} {weight:2}",
  places: ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"],
  step: "step", seed: "seed", at: "step {step}", now: "Step {step}", told: "Seed {seed}, {said}.", axis: "loss (nats per answer)", head: "{name}, head {h}",
  answers: "Answers", sure: "in brackets: the probability that the model gives to its answer", asked: "asked", truth: "truth",
  right: "{answer} ✓ ({sure:2})", wrong: "{answer} ✗ ({sure:2})", first: "asked first", askedSecond: "asked second", later: "asked later",
  back: "Back", next: "Next", play: "Play", pause: "Pause", toStart: "Go to the start", toEnd: "Go to the end",
};
const { ceil, floor, log, max, min } = Math;
const HIGH = 190; // of the chart, with its numbers
const [LEFT, TOP, FOOT] = [44, 10, 34];
const PLAYS = 8000; // ms: all recorded steps
const DASHES = ["", "7 4", "2 3"]; // of the models' losses, in their order
const HALF = { "stroke-dasharray": "1 4", "stroke-width": 2 }; // the line of equally likely answers

/** The bytes of all recordings, from base64. */
export function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** The state after a step, in the order of `_frames`: for each head `weights` and `looked`, for each model the rest. */
export function compute({ data, heads, records, truth, seeds, steps, losses, right, seed, step }) {
  const [s, m] = [seeds.indexOf(seed), steps.indexOf(step)];
  const [all, n, lookups] = [heads.reduce((a, b) => a + b), records.length, truth[0].length];
  const size = data.length / seeds.length / steps.length;
  let at = (s * steps.length + m) * size;
  const take = (count, of) => Array.from({ length: count }, () => of());
  const row = (count, by) => () => take(count, () => data[at++] / by);
  const weights = take(all, () => take(truth.length, row(n, 255)));
  const looked = take(all, row(lookups, 255));
  const answers = take(heads.length, () => take(truth.length, row(lookups, 1)));
  const sure = take(heads.length, () => take(truth.length, row(lookups, 255)));
  return { weights, looked, answers, sure, losses: losses[s].map((row) => row[m]), right: right[s].map((row) => row[m]) };
}

/** The recorded step nearest to a number. */
export function nearest(steps, x) {
  return steps.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
}

/** A loss for reading: two digits after the point, and two significant digits below 0.01. */
export function written(loss) {
  return show(loss, loss >= 0.01 ? 2 : [4, 5, 6, 7, 8].find((d) => loss * 10 ** d >= 10) ?? 2);
}

/** About five round numbers from 0 to a largest one. */
export function ticks(most) {
  const ten = 10 ** floor(log(most / 5) / Math.LN10 + 1e-9);
  const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= most / 6 - 1e-9);
  return Array.from({ length: floor(most / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/** What to try with the model that has most heads; `at` gives the state of a seed after a step. */
function tries({ names, heads, truth, steps }, at) {
  const h = heads.indexOf(max(...heads));
  const first = heads.slice(0, h).reduce((a, b) => a + b, 0);
  const most = (row) => row.indexOf(max(...row));
  const means = ({ looked }) => looked.slice(first, first + heads[h]);
  const clear = (row) => {
    const [a, b] = row.map((x) => Math.round(100 * x)).sort((a, b) => b - a); // as they are written
    return a - b >= 2;
  };
  const solved = ({ answers }) => answers[h].flat().every((answer, i) => answer === truth.flat()[i]);
  if (heads[h] < 2 || truth[0].length < 2) return [];
  return [
    [fill(heads[h] > 2 ? TEXT.allPrefer : TEXT.bothPrefer, { name: names[h] }),
      (now) => now.step > steps[0] && means(now).every((row) => clear(row) && most(row) === most(means(now)[0]))],
    [fill(TEXT.solve, { name: names[h] }),
      (now) => now.step > steps[0] && solved(now) && steps.every((step) => step >= now.step || !solved(at(now.seed, step)))],
    [fill(TEXT.second, { name: names[h] }),
      (now) => now.step === steps.at(-1) && most(means(now)[0]) === 1 && clear(means(now)[0])],
  ];
}

const LOOK = `
.training {
.top { position: sticky; top: var(--over, 0px); z-index: 1; background: var(--ground); border-bottom: 1px solid var(--line); padding-bottom: 4px; }
.line { display: flex; flex-wrap: wrap; align-items: center; gap: 0 12px; } .line fieldset { margin-bottom: 4px; } .now { font-weight: 600; font-variant-numeric: tabular-nums; }
svg { display: block; cursor: pointer; user-select: none; } .over { position: relative; } .handle { position: absolute; top: 0; width: 44px; height: 100%; margin-left: -22px; cursor: ew-resize; touch-action: pan-y; } svg text { font-size: 12px; font-variant-numeric: tabular-nums; paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
input[type=range] { display: block; height: max(28px, var(--target)); width: 100%; margin: 0; outline-offset: -3px; pointer-events: none; appearance: none; background: linear-gradient(var(--line), var(--line)) center / 100% 2px no-repeat; }
${thumb("input[type=range]", "width: 16px; height: 16px; border: 0; border-radius: 50%; background: var(--accent);")}
:is(.model, .half) { display: flex; align-items: center; gap: 8px; font-variant-numeric: tabular-nums; margin: 2px 0; } :is(.model, .half) svg { flex: none; }
.parts { gap: 12px 20px; } .parts > * { min-width: 0; max-width: 100%; overflow-x: auto; } caption { font-weight: 600; } caption span { display: block; font-weight: normal; }
.map table { border-collapse: separate; border-spacing: 1px; } .map :is(td, th) { padding: 1px; font-size: 12px; } .map th[scope=row] { padding-right: 6px; white-space: nowrap; } .map th[scope=col] { text-align: center; border: 0; }
.map td { width: 38px; height: 30px; text-align: center; border: 2px solid transparent; padding: 2px; background-clip: content-box; } .map td span { display: flex; height: 22px; align-items: center; justify-content: center; }
:is(i, .map td).asked0 { border: 2px solid var(--accent); } :is(i, .map td).asked1 { border: 2px dashed var(--accent); } .key i { display: inline-block; width: 18px; height: 14px; vertical-align: -2px; margin-right: 4px; } .key > span { margin-right: 14px; white-space: nowrap; }
.given :is(td, th) { padding: 2px 10px 2px 0; text-align: left; white-space: nowrap; } .given td span { display: inline-block; min-width: 80px; }
@container mha (width < 640px) { .map, .map table { width: 100%; } .given td span { display: block; } }
}`;

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const fixed = Object.fromEntries(["names", "heads", "records", "asked", "truth", "seeds", "steps", "losses", "right"].map((name) => [name, get(name)]));
  fixed.data = bytes(get("frames"));
  const { names, heads, records, asked, truth, seeds, steps, losses } = fixed;
  const at = (seed, step) => ({ ...compute({ ...fixed, seed, step }), seed, step });
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const last = steps.at(-1);
  const questions = asked.map((row) => row.map((j) => records[j].split(":")[0]).join(", "));
  const lookups = truth[0].length;
  let [width, timer, moving] = [343, null, false]; // moving: dragged or played, so no goal counts yet

  // The chart: lines of losses, and a marker at the step.
  const tallest = max(...losses.flat(2)) * 1.04;
  const span = last - steps[0] || 1;
  const x = (step) => LEFT + ((step - steps[0]) / span) * (width - LEFT - 12);
  const y = (loss) => TOP + (1 - loss / tallest) * (HIGH - TOP - FOOT);
  const stroke = (i) => ({ fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": DASHES[i] });
  const still = make("g");
  const curves = names.map((_, i) => make("path", stroke(i)));
  const marker = make("line", { y1: TOP, y2: HIGH - FOOT, stroke: "var(--accent)", "stroke-width": 2 });
  const spots = names.map(() => make("circle", { r: 5, fill: "var(--accent)", stroke: "var(--ground)", "stroke-width": 2 }));
  const svg = make("svg", { "aria-hidden": true, height: HIGH }, still, ...curves, marker, ...spots);
  const word = (px, py, text, anchor) => make("text", { x: px, y: py, "text-anchor": anchor }, text);
  const rule = (x1, y1, x2, y2, more) => make("line", { x1, y1, x2, y2, stroke: "var(--line)", ...more });

  /** Axes and curves: all that does not depend on the step. */
  function paint() {
    const [foot, end] = [HIGH - FOOT, x(last)];
    const some = (all) => all.filter((_, i) => i % ceil(all.length / max(2, floor((end - LEFT) / 44))) === 0);
    const half = log(lookups);
    still.replaceChildren(rule(LEFT, TOP, LEFT, foot), rule(LEFT, foot, end, foot),
      ...ticks(tallest).flatMap((loss) => [rule(LEFT - 4, y(loss), LEFT, y(loss)), word(LEFT - 7, y(loss) + 4, show(loss, 1), "end")]),
      ...some(ticks(last).filter((step) => step >= steps[0])).flatMap((step) => [rule(x(step), foot, x(step), foot + 4), word(x(step), foot + 16, step, "middle")]),
      word((LEFT + end) / 2, HIGH - 4, TEXT.step, "middle"), word(end - 8, TOP + 4, TEXT.axis, "end"),
      ...(half ? [rule(LEFT, y(half), end, y(half), HALF)] : []));
    curves.forEach((curve, i) => set(curve, { d: `M${losses[seeds.indexOf(get("seed"))][i].map((loss, m) => `${x(steps[m]).toFixed(1)} ${y(loss).toFixed(1)}`).join("L")}` }));
    set(svg, { width, viewBox: `0 0 ${width} ${HIGH}` });
    track.style.marginLeft = `${LEFT - 8}px`;
    track.style.width = `${end - LEFT + 16}px`;
  }

  // What moves the step
  const go = (step, done = true) => {
    const to = nearest(steps, step);
    moving = !done;
    if (to === get("step")) draw();
    else send({ _step: to });
    if (done) tell();
  };
  const by = (way) => steps[clip(steps.indexOf(get("step")) + way, 0, steps.length - 1)];
  const slider = make("input", {
    type: "range", min: steps[0], max: last, "aria-label": TEXT.step, oninput: () => { halt(); go(slider.valueAsNumber); },
    onkeydown: (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -Infinity, End: Infinity }[event.key];
      if (way === undefined) return;
      event.preventDefault(); // recorded steps are not equally far apart
      halt();
      go(by(way));
    },
  });
  const unit = () => (width - LEFT - 12) / span; // px for a step
  const grips = [0, 1].map(() => handle(() => {
    halt();
    slider.focus({ preventScroll: true });
    return get("step");
  }, (way, from) => go(from + way / unit(), false), (from, scrolls) => go(scrolls ? from : get("step"))));
  const hit = ({ clientX }) => {
    halt();
    slider.focus({ preventScroll: true });
    go(steps[0] + (clientX - svg.getBoundingClientRect().left - LEFT) / unit());
  };
  const track = make("div", { class: "over" }, slider, grips[1]);
  // A finger taps. A mouse may also go on: what it has hit brings the handle there, which it then drags.
  let mouse = false;
  [svg, track].forEach((area, i) => {
    area.addEventListener("pointerdown", (event) => {
      if (grips.includes(event.target)) return;
      mouse = event.pointerType !== "touch";
      if (!mouse || event.button > 0) return;
      event.preventDefault();
      hit(event);
      grips[i].dispatchEvent(new PointerEvent("pointerdown", event));
    });
    area.addEventListener("click", (event) => { if (!mouse && !grips.includes(event.target)) hit(event); });
  });
  const play = make("button", { type: "button", onclick: () => (timer === null ? start() : halt(true)) });
  const stepBy = (way, text) => make("button", { type: "button", onclick: () => { halt(); go(by(way)); } }, text);
  const chosen = choice(TEXT.seed, seeds.map((seed) => [seed, seed]), (seed) => { halt(); moving = false; send({ _seed: Number(seed) }); tell(); });

  // Losses in words, heatmaps, answers
  const now = make("span", { class: "now" });
  const told = names.map(() => make("span"));
  const lines = names.map((_, i) => make("div", { class: "model" }, make("svg", { width: 34, height: 12, "aria-hidden": true }, make("path", { d: "M0 6H34", ...stroke(i) })), told[i]));
  const head = (text) => make("th", { scope: "col" }, text);
  const maps = heads.flatMap((count, m) => Array.from({ length: count }, (_, h) => {
    const mean = make("span");
    const cells = asked.map((places) => records.map((_, j) => make("td", { class: places.includes(j) ? `asked${min(places.indexOf(j), 1)}` : null }, make("span"))));
    const rows = cells.map((row, q) => make("tr", {}, make("th", { scope: "row" }, questions[q]), ...row));
    const title = count > 1 ? fill(TEXT.head, { name: names[m], h }) : names[m];
    return { mean, cells, node: make("div", { class: "map" }, make("table", {}, make("caption", {}, title, mean),
      make("thead", {}, make("tr", {}, make("td", { style: "border: 0" }), ...records.map(head))), make("tbody", {}, ...rows))) };
  }));
  const given = names.map(() => truth.map((row) => make("td", {}, ...row.flatMap(() => [make("span"), " "]))));
  const answers = make("div", { class: "given" }, make("table", {}, make("caption", {}, TEXT.answers, make("span", {}, TEXT.sure)),
    make("thead", {}, make("tr", {}, ...[TEXT.asked, TEXT.truth, ...names].map(head))),
    make("tbody", {}, ...questions.map((question, q) => make("tr", {}, make("th", { scope: "row" }, question), make("td", {}, truth[q].join(", ")), ...given.map((cells) => cells[q]))))));
  const reached = tries(fixed, at).filter(([, met]) => seeds.some((seed) => steps.some((step) => met(at(seed, step)))));
  const aims = goals(reached, at(get("seed"), get("step")));
  const again = reset(model, ["_seed", "_step"], send, () => { halt(); moving = false; draw(); aims.clear(); tell(); });
  root.classList.add("training");
  root.append(make("style", {}, LOOK),
    make("p", {}, fill(asked.length > 1 ? TEXT.intro : TEXT.introOne, { n: asked.length, record: records[0], name: records[0].split(":")[0], content: records[0].split(":").slice(1).join(":") })),
    make("div", { class: "line" }, chosen.group),
    make("div", { class: "over" }, svg, grips[0]),
    ...(lookups > 1 ? [make("div", { class: "half" }, make("svg", { width: 34, height: 12, "aria-hidden": true }, rule(0, 6, 34, 6, HALF)), fill(TEXT.half, { n: lookups, loss: log(lookups) }))] : []),
    make("div", { class: "top" }, track, make("div", { class: "line" }, make("span", {}, play, stepBy(-1, TEXT.back), stepBy(1, TEXT.next)), now), ...lines),
    make("div", { class: "line key" }, make("span", {}, make("i", { class: "asked0" }), TEXT.first), ...(lookups > 1 ? [make("span", {}, make("i", { class: "asked1" }), lookups > 2 ? TEXT.later : TEXT.askedSecond)] : []), scale()),
    make("div", { class: "parts" }, ...maps.map(({ node }) => node), answers), aims.node, again);

  function draw() {
    const state = at(get("seed"), get("step"));
    set(marker, { x1: x(state.step), x2: x(state.step) });
    grips.forEach((grip, i) => { grip.style.left = `${x(state.step) - i * (LEFT - 8)}px`; });
    slider.value = state.step;
    set(slider, { "aria-valuetext": fill(TEXT.at, { step: state.step }) });
    chosen.pick(state.seed);
    say(now, fill(TEXT.now, { step: state.step }));
    if (timer === null) say(play, idle());
    names.forEach((name, i) => {
      set(spots[i], { cx: x(state.step), cy: y(state.losses[i]) });
      say(told[i], fill([TEXT.one, TEXT.two][lookups - 1] ?? TEXT.all, { name, loss: written(state.losses[i]), right: 100 * state.right[i] }));
      given[i].forEach((cell, q) => {
        state.answers[i][q].forEach((answer, l) => say(cell.children[l], fill(answer === truth[q][l] ? TEXT.right : TEXT.wrong, { answer, sure: state.sure[i][q][l] })));
      });
    });
    maps.forEach(({ mean, cells }, h) => {
      say(mean, fill(TEXT.mean, { weights: state.looked[h].map((weight, l) => fill(TEXT.weight, { place: TEXT.places[l], weight })).join(", ") }));
      cells.forEach((row, q) => row.forEach((cell, j) => {
        shade(cell, state.weights[h][q][j]);
        say(cell.firstChild, show(state.weights[h][q][j]));
      }));
    });
    if (!moving) aims.look(state);
  }

  function tell() {
    speak(fill(TEXT.told, { seed: get("seed"), said: [now, ...told].map((one) => one.textContent).join(". ") }));
  }

  function idle() {
    return !calm.matches ? TEXT.play : get("step") === last ? TEXT.toStart : TEXT.toEnd;
  }

  function start() {
    const from = get("step") === last ? steps[0] : get("step");
    if (calm.matches) return go(from === get("step") ? last : from);
    timer = setInterval(() => (get("step") === last ? halt(true) : go(by(1), false)), PLAYS / steps.length);
    say(play, TEXT.pause);
    go(from, false);
  }

  function halt(done = false) {
    clearInterval(timer);
    timer = null;
    say(play, idle());
    if (done) go(get("step"));
  }

  const stops = [
    follow(model, ["_seed"], () => { paint(); draw(); }),
    follow(model, ["_step"], draw),
  ];
  const watch = new ResizeObserver(([entry]) => { width = max(280, floor(entry.contentRect.width)); paint(); draw(); });
  watch.observe(root);
  paint();
  draw();
  return () => {
    halt();
    watch.disconnect();
    stops.forEach((stop) => stop());
  };
}

export default { render };
