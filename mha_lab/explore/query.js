// Drag a query in the plane: dot products, scaled scores, weights and the fetched value follow.

import { choice, dot, follow, frame, make, say, sender, set, show, softmax } from "./shared.js";

const SIZE = 380;
const DASHES = ["", "8 3", "2 3", "10 3 2 3"];

/** The numbers of one query. */
export function compute({ query, keys, values, scale }) {
  const products = keys.map((key) => dot(query, key));
  const scores = products.map((product) => product * scale);
  const weights = softmax(scores);
  const output = values[0].map((_, c) => dot(weights, values.map((value) => value[c])));
  return { products, scores, weights, output };
}

/** A query that gives the chosen keys, one or two, over 0.99 of the weight in equal parts; `null` if none does.
 * It is as long as that needs, but stays within `reach`. */
export function aim(keys, chosen, scale, reach) {
  const rows = keys.map((key) => key.map((x) => x * scale));
  const wanted = chosen.map((i) => rows[i]);
  const others = rows.filter((_, i) => !chosen.includes(i));
  const minus = (a, b) => a.map((x, c) => x - b[c]);
  const both = ([x, y]) => [[-y, x], [y, -x]]; // at a right angle, to either side
  const apart = minus(wanted[0], wanted.at(-1));
  // Two keys score the same only at a right angle to their difference. For one: along the key if that will do,
  // else where its lead is largest, which is away from one other key or at a right angle to two.
  const ways = apart.some((x) => x !== 0) ? both(apart).sort((a, b) => dot(b, wanted[0]) - dot(a, wanted[0])) : [
    wanted[0],
    ...others.map((row) => minus(wanted[0], row)),
    ...others.flatMap((a, i) => others.slice(i + 1).flatMap((b) => both(minus(a, b)))),
  ];
  const found = ways.filter((way) => Math.hypot(...way) > 1e-9).map((way) => {
    const unit = way.map((x) => x / Math.hypot(...way));
    const lead = Math.min(...wanted.map((row) => dot(row, unit))) - Math.max(...others.map((row) => dot(row, unit)));
    return { unit, lead, length: Math.log(200 * keys.length) / lead || reach / 2 };
  }).filter(({ lead }) => lead > 1e-9);
  if (!found.length) return null;
  const { unit, length } = found.find(({ length }) => length <= reach) ?? found.reduce((a, b) => (b.lead > a.lead ? b : a));
  return unit.map((x) => x * Math.min(length, reach));
}

function render({ model, el }) {
  const keys = model.get("_keys");
  const values = model.get("_values");
  const labels = model.get("_labels");
  const reach = model.get("_reach");
  const send = sender(model);
  const { root, speak } = frame(el, "Explorable: a query in the plane of the keys");
  const at = ([x, y]) => [SIZE / 2 + (x / reach) * (SIZE / 2), SIZE / 2 - (y / reach) * (SIZE / 2)];
  const state = () => ({ query: model.get("_query"), scale: model.get("_scale"), keys, values });

  // The plane
  const arrow = (attributes) => make("line", { x1: SIZE / 2, y1: SIZE / 2, ...attributes });
  const plane = make("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, width: SIZE, height: SIZE, style: "touch-action: none; max-width: 100%; height: auto" });
  for (const [x1, y1, x2, y2] of [[0, SIZE / 2, SIZE, SIZE / 2], [SIZE / 2, 0, SIZE / 2, SIZE]]) {
    plane.append(make("line", { x1, y1, x2, y2, stroke: "var(--line)", "stroke-width": 1 }));
  }
  const heads = keys.map((key, i) => {
    const [x, y] = at(key);
    const line = arrow({ x2: x, y2: y, stroke: "var(--key)", "stroke-dasharray": DASHES[i % DASHES.length] });
    const head = make("circle", { cx: x, cy: y, fill: "var(--key)" });
    const inward = x > SIZE * 0.75 ? "end" : x < SIZE * 0.25 ? "start" : "middle";
    const text = make("text", { x, y: y > SIZE / 2 + 1 ? y + 24 : y - 14, "text-anchor": inward });
    say(text, labels[i]);
    plane.append(line, head, text);
    return { line, head };
  });
  const stem = arrow({ stroke: "var(--query)", "stroke-width": 4 });
  const tip = make("circle", {
    r: 10, fill: "var(--query)", stroke: "var(--ground)", "stroke-width": 2, tabindex: 0, role: "slider",
    "aria-label": "query, arrow keys move it", "aria-valuemin": -reach, "aria-valuemax": reach,
    style: "cursor: grab",
  });
  const name = make("text", { "font-weight": "bold" });
  say(name, "query");
  plane.append(stem, name, tip);

  // The numbers
  const several = (numbers, digits) => {
    const texts = numbers.map((x) => show(x, digits ?? (Number.isInteger(x) ? 0 : 2)));
    return texts.length === 1 ? texts[0] : `(${texts.join(", ")})`;
  };
  const cells = labels.map((label, i) => {
    const bar = make("div", { class: "bar" });
    const row = [0, 1, 2].map(() => make("td"));
    const head = make("th", { scope: "row" });
    say(head, label);
    const value = make("td", {}, several(values[i]));
    return { bar, row, line: make("tr", {}, head, value, ...row, make("td", {}, make("div", { class: "track" }, bar))) };
  });
  const headings = ["key", "value", "query · key", "score", "weight", "weight as a bar"];
  const table = make("table", {},
    make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...cells.map((cell) => cell.line)));
  const fetched = make("p", { "data-part": "output" });
  const numbers = ["x", "y"].map((axis, c) =>
    make("input", {
      type: "number", step: 0.1, "aria-label": `query, ${axis}`,
      oninput: (event) => {  // at each key: some front ends take Enter for themselves
        if (Number.isNaN(event.target.valueAsNumber)) return;  // empty, or only a minus sign
        move(state().query.map((x, i) => (i === c ? event.target.valueAsNumber : x)), false);
      },
      onchange: tell,
      onblur: draw,  // the number that counts, within the plane
    }));
  const d_k = keys[0].length;
  const offered = [[1, "no scale"], [1 / Math.sqrt(d_k), "1/√d_k"], [1 / d_k, "1/d_k"]];
  const scales = choice("score = scale × (query · key)", offered, (scale) => { send({ _scale: scale }); draw(); tell(); });
  // Each click takes the next key, or the next two keys, for which there is such a query.
  const preset = (text, choices) => {
    let turn = -1;
    const queries = () => choices.map((chosen) => aim(keys, chosen, state().scale, reach)).filter((query) => query !== null);
    const onclick = () => {
      const found = queries();
      turn = (turn + 1) % found.length;
      move(found[turn], true);
    };
    const button = make("button", { type: "button", onclick }, text);
    const offer = () => {
      button.disabled = queries().length === 0;
      button.title = button.disabled ? "No query does that with these keys." : "";
      button.style.opacity = button.disabled ? 0.5 : 1;
    };
    return { button, offer };
  };
  const focus = preset("Focus on one key", keys.map((_, i) => [i]));
  const average = preset("Average two keys", keys.flatMap((_, i) => keys.slice(i + 1).map((_, j) => [i, i + 1 + j])));
  let offers = null; // the scale that the buttons were last offered for

  // A fixed width: with longer numbers, the table must not jump below the plane during a drag.
  root.append(make("div", { class: "parts" }, plane, make("div", { style: "flex: 1 1 430px; min-width: 0; overflow-x: auto" },
    make("p", {}, "Drag the tip of the query, or focus it and use the arrow keys."),
    make("p", {}, "query = (", numbers[0], ", ", numbers[1], ")"),
    make("div", {}, focus.button, average.button), scales.group, table, fetched)));

  function draw() {
    const now = state();
    const { products, scores, weights, output } = compute(now);
    if (offers !== now.scale) [focus, average].forEach(({ offer }) => offer());
    offers = now.scale;
    const [x, y] = at(now.query);
    set(stem, { x2: x, y2: y });
    set(tip, {
      cx: x, cy: y, "aria-valuenow": now.query[0],
      "aria-valuetext": `x ${show(now.query[0])}, y ${show(now.query[1])}`,
    });
    set(name, { x: x + (x > SIZE - 70 ? -58 : 14), y: y + (y > SIZE - 20 ? -12 : 18) });
    weights.forEach((weight, i) => {
      set(heads[i].line, { "stroke-width": 1.5 + 5 * weight });
      set(heads[i].head, { r: 4 + 5 * weight });
      [show(products[i]), show(scores[i]), show(weight, 3)].forEach((text, c) => say(cells[i].row[c], text));
      cells[i].bar.style.width = `${100 * weight}%`;
    });
    numbers.forEach((input, c) => { if (document.activeElement !== input) input.value = now.query[c].toFixed(2); });
    scales.pick(offered.map(([scale]) => scale).find((scale) => Math.abs(scale - now.scale) < 1e-5) ?? now.scale);
    say(fetched, `fetched value = ${several(output, 2)}`);
  }

  function tell() {
    const { weights, output } = compute(state());
    const most = weights.indexOf(Math.max(...weights));
    speak(`${labels[most]} has the largest weight, ${show(weights[most])}. Fetched value ${several(output, 2)}.`);
  }

  function move(query, aloud) {
    const inside = query.map((x) => Math.min(Math.max(x, -reach), reach));
    send({ _query: inside });
    draw();
    if (aloud) tell();
  }

  const drag = (event) => {
    const box = plane.getBoundingClientRect();
    move([
      ((event.clientX - box.left) / box.width - 0.5) * 2 * reach,
      (0.5 - (event.clientY - box.top) / box.height) * 2 * reach,
    ], false);
  };
  plane.addEventListener("pointerdown", (event) => {
    plane.setPointerCapture(event.pointerId);
    tip.focus();
    event.preventDefault();
    drag(event);
  });
  plane.addEventListener("pointermove", (event) => { if (plane.hasPointerCapture(event.pointerId)) drag(event); });
  plane.addEventListener("pointerup", tell);
  tip.addEventListener("keydown", (event) => {
    const step = (event.shiftKey ? 5 : 1) * (reach / 40);
    const steps = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (!(event.key in steps)) return;
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would move to the next cell
    move(state().query.map((x, c) => x + steps[event.key][c]), true);
  });
  draw();
  return follow(model, ["_query", "_scale"], draw);
}

export default { render };
