// All heads at once: choose a token, and its row is marked in every head, with what each head fetches.

import { add, dot, fill, follow, frame, goals, make, paint, reset, say, scale, sender, set, shade, show, vector, wide } from "./shared.js";

const TEXT = {
  name: "Explorable: attention weights of all heads",
  intro: "Choose a query token, or click its row in a map. Rows are ● queries, columns are ■ keys. A click on a map also enlarges it. Pick one or more heads to compare them below.",
  one: "{a} ({largest:2})", two: "{a} and {b} ({largest:2} each)", several: "{n} keys ({largest:2} each)", all: "all keys ({largest:2} each)",
  head: "head {h}", keys: "{n_k} keys", query: "query {query}", map: "heatmap of head {h}", shown: "heatmap of {name}, enlarged", enlarged: "the enlarged heatmap",
  click: "Click: choose this row, enlarge this head", token: "query token", chosen: "weights of the chosen token", large: "Enlarged",
  join: "Average the picked heads", average: "average of head {heads}", averages: "average of heads {heads}", mean: "average", theAverage: "the average",
  sum: "A head fetches the sum of weight × ▲ value.", stays: "One head always stays picked.", value: "▲ value", weights: "weights", fetches: "fetches",
  aims: ["Find the largest weight of all heads: enlarge its head, and choose its query.", "Pick exactly two heads, and average them."],
  looks: "in {name}, to {keys}", fetched: "in {name}, to {keys}, so it fetches {fetched}", told: "The query {query} gives most weight, {heads}.",
};
const NUMBERED = 256; // cells of the largest map that is shown with its numbers
const READABLE = 13; // px of a row: less has no room for a label

/** The weights of one query: a row for each picked head, or only their average. */
export function compute({ weights, shape, row, picked, averaged }) {
  const [, n_q, n_k] = shape;
  const rows = picked.map((h) => Array.from(weights.slice((h * n_q + row) * n_k, (h * n_q + row + 1) * n_k)));
  return averaged ? [add(rows).map((sum) => sum / rows.length)] : rows;
}

/** What a row of weights fetches: the weighted sum of the values. */
export function output(row, values) {
  return values[0].map((_, c) => dot(row, values.map((value) => value[c])));
}

/** Float32 numbers from the bytes that Python sends, or from base64 on a plain page. */
export function numbers(data) {
  const bytes = typeof data === "string"
    ? Uint8Array.from(atob(data), (c) => c.charCodeAt(0))
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new Float32Array(bytes.slice().buffer);
}

/** The keys with the largest weight of a row, and this weight, as `_most` of the Python side. */
function most(row, keys) {
  const largest = Math.max(...row);
  const best = keys.filter((_, j) => row[j] > largest - 1e-6);
  const several = best.length < 3 ? TEXT.two : best.length === keys.length ? TEXT.all : TEXT.several;
  return fill(best.length > 1 ? several : TEXT.one, { a: best[0], b: best[1], n: best.length, largest });
}

const LOOK = `
.mha-heads {
.maps { flex: 1 1 320px; display: flex; flex-wrap: wrap; gap: 14px 18px; align-items: flex-start; min-width: 0; } .parts > .large { min-width: 0; max-width: 100%; }
.whole { display: grid; grid-template-columns: auto auto; width: max-content; font-size: 12px; line-height: 1; } .whole > button { grid-column: 1 / -1; margin: 0 0 6px; justify-self: start; font-size: 14px; }
.map { position: relative; border: 1px solid var(--line); width: max-content; cursor: pointer; }
.chosen-row { position: absolute; left: -3px; right: -3px; border: 2px solid var(--query); pointer-events: none; }
.names { position: relative; margin-right: 6px; text-align: right; } .names span { display: block; max-width: 6em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.names.even span { display: flex; align-items: center; justify-content: flex-end; } .now { text-shadow: 0.5px 0, -0.5px 0; } .names .alone { position: absolute; right: 0; transform: translateY(-50%); } .names.one { width: 3.5em; }
.map canvas { width: var(--side); height: var(--high); image-rendering: pixelated; display: block; } .even span { height: calc(var(--high) / var(--rows)); }
.below { grid-column: 2; display: flex; margin-top: 4px; line-height: 1.3; width: var(--side); } .below span { flex: 1 1 0; min-width: 0; overflow: hidden; text-align: center; white-space: nowrap; }
.below.tall span { writing-mode: vertical-rl; max-height: 6em; display: flex; align-items: center; text-overflow: ellipsis; }
[role=option] { margin: 0 2px 4px 0; padding: 1px 6px; } [role=option][aria-selected=true] { border: 2px solid var(--query); padding: 0 5px; text-shadow: 0.5px 0, -0.5px 0; }
[role=listbox] { max-height: 12em; overflow-y: auto; padding: 4px; margin: 0 -4px; }
:is(.strips, .large .wide) { overflow-x: auto; margin: 5px -3px 0; padding: 3px; max-width: calc(100% + 6px); } .strips table { white-space: nowrap; } .strips :is(td, th) { padding: 2px 4px; } .strips td { text-align: center; min-width: 36px; }
.large table { table-layout: fixed; width: max-content; } .large td { width: 42px; height: 30px; padding: 0; text-align: center; border: 1px solid var(--ground); } .large thead th { border: 0; text-align: center; padding: 2px; } .large :is(th) { max-width: 6em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.large .now { outline: 2px solid var(--query); } .large canvas { width: min(512px, 100cqi - 40px); height: auto; } .strips thead th { border: 0; } .strips th[scope=col] { text-align: center; }
.large label { display: inline-flex; gap: 6px; align-items: center; } .large select { margin: 0; max-width: 16em; }
@container mha (width < 640px) { .whole { font-size: 11px; } .below.close span { writing-mode: vertical-rl; display: flex; align-items: center; } }
}`;

function render({ model, el }) {
  const shape = model.get("_shape");
  const [heads, n_q, n_k] = shape;
  const queries = model.get("_query_labels");
  const keys = model.get("_key_labels");
  const values = model.get("_values");
  const weights = numbers(model.get("_weights"));
  const send = sender(model, el);
  const { root, inks, speak } = frame(el, TEXT.name, paintAll);
  root.classList.add("mha-heads");
  const state = () => ({
    weights, shape, row: model.get("_row"), picked: model.get("_picked"), averaged: model.get("_averaged"),
  });
  const all = Array.from({ length: heads }, (_, h) => h);
  let large = state().picked[0]; // the head whose map is enlarged; all picked ones if they are averaged

  /** A canvas with a pixel for each weight. */
  const draft = (label) => make("canvas", { width: n_k, height: n_q, role: "img", "aria-label": label });
  const ink = (canvas, at) => paint(canvas, n_q, n_k, inks, (i, j) => at(i * n_k + j));

  let before = null; // the chosen row, while a mouse is over another one; a click chooses that
  const over = (row, { pointerType }) => {
    if (pointerType === "touch") return; // a finger chooses with the tokens, so that its swipe scrolls the page
    before ??= state().row;
    choose(row, false);
  };
  const leave = () => {
    if (before !== null) choose(before, true);
  };

  /** The row under a mouse or a finger. */
  const under = (canvas, { clientY }) => {
    const area = canvas.getBoundingClientRect();
    return Math.min(n_q - 1, Math.max(0, Math.floor(((clientY - area.top) / area.height) * n_q)));
  };
  const hover = (canvas) => (event) => over(under(canvas, event), event);
  const pass = (row) => (event) => over(row, event);

  // A labelled heatmap for each head; the chosen row gets a frame and keeps its colours.
  const side = Math.max(72, Math.min(180, Math.floor(820 / Math.min(heads, 8)) - 40));
  const ratio = Math.min(2, n_q / n_k);
  const least = Math.min(side, 105); // on a phone, where two maps stand side by side
  const roomy = (least * ratio) / n_q >= READABLE;
  const column = least / n_k; // px
  const letters = Math.max(...keys.map((key) => key.length));
  const maps = all.map((h) => {
    const canvas = draft(fill(TEXT.map, { h }));
    const mark = make("div", { class: "chosen-row" });
    const box = make("div", {
      class: "map", title: TEXT.click,
      onpointermove: hover(canvas), onpointerleave: leave, onclick: (event) => enlarge(h, under(canvas, event)),
    }, canvas, mark);
    const button = make("button", { type: "button", onclick: () => pick(h) }, fill(TEXT.head, { h }));
    const rows = roomy ? queries.map((text) => make("span", {}, text)) : [make("span", { class: "alone now" })];
    const names = make("div", { class: roomy ? "names even" : "names one", "aria-hidden": "true" }, ...rows);
    const below = column >= READABLE
      ? make("div", { class: letters * 7 > column ? "below tall" : letters * 7 + 4 > column ? "below close" : "below", "aria-hidden": "true" }, ...keys.map((key) => make("span", {}, key)))
      : make("div", { class: "below", "aria-hidden": "true" }, make("span", {}, fill(TEXT.keys, { n_k })));
    return { canvas, mark, button, rows, whole: make("div", { class: "whole" }, button, names, box, below) };
  });

  // One map enlarged: with its numbers if they fit.
  const mean = make("option", { value: "average" });
  const which = make("select", { onchange: () => (which.value === "average" ? join(true) : enlarge(Number(which.value))) },
    ...all.map((h) => make("option", { value: h }, fill(TEXT.head, { h }))), mean);
  const title = make("p");
  const numbered = n_q * n_k <= NUMBERED;
  const lineOf = (label, i) => {
    const cells = keys.map(() => make("td"));
    return { cells, line: make("tr", { onpointerenter: pass(i), onclick: () => choose(i, true) }, make("th", { scope: "row" }, label), ...cells) };
  };
  const big = numbered ? { lines: queries.map(lineOf) } : { canvas: draft(TEXT.enlarged) };
  const frameOfBig = make("div", { class: "chosen-row" });
  const sheet = numbered
    ? make("table", { onpointerleave: leave }, make("thead", {}, make("tr", {}, make("td"), ...keys.map((key) => make("th", { scope: "col" }, key)))), make("tbody", {}, ...big.lines.map(({ line }) => line)))
    : make("div", { class: "map", onpointermove: hover(big.canvas), onpointerleave: leave, onclick: (event) => choose(under(big.canvas, event), true) }, big.canvas, frameOfBig);
  let painted = null; // what the enlarged map shows

  // The tokens: one tab stop, arrow keys move inside it.
  const tokens = queries.map((label, i) => make("button", {
    type: "button", role: "option", tabindex: -1,
    onpointerenter: pass(i), onclick: () => choose(i, true), onfocus: () => choose(i, true),
  }, label));
  const list = make("div", { role: "listbox", "aria-label": TEXT.token, "aria-orientation": "horizontal", onpointerleave: leave, onkeydown: (event) => {
    const to = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -n_q, End: n_q }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    tokens[Math.min(n_q - 1, Math.max(0, state().row + to))].focus();
  } }, ...tokens);

  const average = make("button", { type: "button", onclick: () => join(!state().averaged) }, TEXT.join);
  const why = make("span"); // a head stays picked
  const strips = make("div", { class: "strips", tabindex: 0, role: "group", "aria-label": TEXT.chosen });
  let lines = [];
  const top = weights.reduce((a, b) => Math.max(a, b));
  const tries = goals([
    [TEXT.aims[0], ({ row, averaged }) =>
      !averaged && Math.max(...weights.slice((large * n_q + row) * n_k, (large * n_q + row + 1) * n_k)) > top - 1e-6],
    [TEXT.aims[1], ({ picked, averaged }) => averaged && picked.length === 2],
  ].slice(0, heads > 1 ? 2 : 1), state());
  const again = reset(model, ["_row", "_picked", "_averaged"], send, () => {
    large = state().picked[0];
    tries.clear();
    draw();
    tell();
  });

  root.append(
    make("style", {}, LOOK),
    make("p", {}, TEXT.intro),
    list, make("div", { class: "parts" }, make("div", { class: "maps", style: `--side: min(${side}px, 50cqi - 66px); --high: calc(${ratio} * var(--side)); --rows: ${n_q}` }, ...maps.map((map) => map.whole)),
      make("div", { class: "large" }, make("label", {}, TEXT.large, which), title, wide(sheet))),
    scale(), average, why, strips, ...(values.length ? [make("p", {}, TEXT.sum)] : []), tries.node, again);

  /** For now, or for good, and then it is said. */
  function choose(row, stays) {
    if (stays) before = null;
    if (row !== state().row) send({ _row: row });
    else if (!stays) return;
    draw();
    if (stays) tell();
  }

  function pick(head) {
    const { picked } = state();
    const next = picked.includes(head) ? picked.filter((h) => h !== head) : [...picked, head].sort((a, b) => a - b);
    if (next.length === 0) {
      say(why, TEXT.stays);
      return speak(why.textContent);
    }
    send({ _picked: next });
    draw();
    tell();
  }

  function join(averaged) {
    send({ _averaged: averaged });
    draw();
    tell();
  }

  function enlarge(head, row = state().row) {
    large = head;
    before = null;
    send({ _averaged: false, _row: row });
    draw();
    tell();
  }

  /** One line of the sentence for each picked head; made again only when their number changes. */
  function lay(count) {
    if (lines.length === count) return;
    lines = Array.from({ length: count }, () => {
      const cells = keys.map(() => make("td"));
      const [head, fetched] = [make("th", { scope: "row" }), make("td")];
      return { head, cells, fetched, line: make("tr", {}, head, ...(values.length ? [fetched] : []), ...cells) };
    });
    const heading = (text) => make("th", { scope: "col" }, text);
    const given = values.length ? [make("tr", {}, make("th", { scope: "row" }, TEXT.value), make("td"), ...values.map((value) => make("td", {}, vector(value))))] : [];
    strips.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, heading(TEXT.weights), ...(values.length ? [heading(TEXT.fetches)] : []), ...keys.map(heading)), ...given),
      make("tbody", {}, ...lines.map((line) => line.line))));
  }

  /** The numbers or the pixels of the enlarged map, only if it shows another head. */
  function blowUp({ row, picked, averaged }) {
    const shown = averaged ? picked : [large];
    say(mean, fill(picked.length > 1 ? TEXT.averages : TEXT.average, { heads: picked.join(", ") }));
    const name = averaged ? mean.textContent : fill(TEXT.head, { h: large });
    which.value = averaged ? "average" : large;
    say(title, numbered ? "" : fill(TEXT.query, { query: queries[row] }));
    if (painted === shown.join()) return;
    painted = shown.join();
    const at = (i) => shown.reduce((sum, h) => sum + weights[h * n_q * n_k + i], 0) / shown.length;
    if (!numbered) {
      set(big.canvas, { "aria-label": fill(TEXT.shown, { name }) });
      ink(big.canvas, at);
    }
    big.lines?.forEach(({ cells }, i) => cells.forEach((cell, j) => {
      shade(cell, at(i * n_k + j));
      say(cell, show(at(i * n_k + j)));
    }));
  }

  function draw() {
    const now = state();
    say(why, "");
    const place = { top: `${(100 * now.row) / n_q}%`, height: `max(4px, ${100 / n_q}%)` };
    maps.forEach(({ mark, button, rows }, h) => {
      Object.assign(mark.style, place);
      set(button, { "aria-pressed": now.picked.includes(h) });
      if (roomy) return rows.forEach((name, i) => set(name, { class: i === now.row ? "now" : "" }));
      say(rows[0], queries[now.row]);
      rows[0].style.top = `${(100 * (now.row + 0.5)) / n_q}%`;
    });
    Object.assign(frameOfBig.style, place);
    big.lines?.forEach(({ line }, i) => set(line, { class: i === now.row ? "now" : "" }));
    blowUp(now);
    tokens.forEach((token, i) => set(token, { "aria-selected": i === now.row, tabindex: i === now.row ? 0 : -1 }));
    set(average, { "aria-pressed": now.averaged });
    const rows = compute(now);
    lay(rows.length);
    rows.forEach((row, r) => {
      say(lines[r].head, now.averaged ? TEXT.mean : fill(TEXT.head, { h: now.picked[r] }));
      if (values.length) say(lines[r].fetched, vector(output(row, values)));
      row.forEach((weight, j) => {
        shade(lines[r].cells[j], weight);
        say(lines[r].cells[j], show(weight));
      });
    });
    if (before === null) tries.look(now);
  }

  function tell() {
    const now = state();
    const said = compute(now).map((row, r) => {
      const name = now.averaged ? TEXT.theAverage : fill(TEXT.head, { h: now.picked[r] });
      const fetched = values.length ? vector(output(row, values)) : "";
      return fill(values.length ? TEXT.fetched : TEXT.looks, { name, keys: most(row, keys), fetched });
    });
    speak(fill(TEXT.told, { query: queries[now.row], heads: said.join("; ") }));
  }

  /** The maps, in the colours of the theme. */
  function paintAll() {
    maps.forEach(({ canvas }, h) => ink(canvas, (i) => weights[h * n_q * n_k + i]));
    painted = null;
    draw();
  }

  paintAll();
  return follow(model, ["_row", "_picked", "_averaged"], draw);
}

export default { render };
