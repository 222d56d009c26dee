// All heads at once: choose a token, and its row is marked in every head and in the sentence.

import { follow, frame, make, say, scale, sender, set, shade, show } from "./shared.js";

/** The weights of one query: a row for each picked head, or only their average. */
export function compute({ weights, shape, row, picked, averaged }) {
  const [, n_q, n_k] = shape;
  const rows = picked.map((h) => Array.from(weights.slice((h * n_q + row) * n_k, (h * n_q + row + 1) * n_k)));
  if (!averaged) return rows;
  return [Array.from({ length: n_k }, (_, j) => rows.reduce((sum, w) => sum + w[j], 0) / rows.length)];
}

/** Float32 numbers from the bytes that Python sends, or from base64 on a plain page. */
export function numbers(data) {
  const bytes = typeof data === "string"
    ? Uint8Array.from(atob(data), (c) => c.charCodeAt(0))
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new Float32Array(bytes.slice().buffer);
}

function render({ model, el }) {
  const shape = model.get("_shape");
  const [heads, n_q, n_k] = shape;
  const queries = model.get("_query_labels");
  const keys = model.get("_key_labels");
  const weights = numbers(model.get("_weights"));
  const send = sender(model);
  const { root, speak } = frame(el, "Explorable: attention weights of all heads");
  const state = () => ({
    weights, shape, row: model.get("_row"), picked: model.get("_picked"), averaged: model.get("_averaged"),
  });

  // A heatmap for each head; the chosen row gets a frame and keeps its colours.
  const side = Math.max(64, Math.min(200, Math.floor(820 / Math.min(heads, 8)) - 14));
  const maps = Array.from({ length: heads }, (_, h) => {
    const canvas = make("canvas", { width: n_k, height: n_q, role: "img", "aria-label": `heatmap of head ${h}` });
    canvas.style.cssText = `width: ${side}px; height: ${Math.round(Math.min(2, n_q / n_k) * side)}px; image-rendering: pixelated; display: block`;
    const paper = canvas.getContext("2d");
    const image = paper.createImageData(n_k, n_q);
    for (let i = 0; i < n_q * n_k; i += 1) {
      image.data.set([...shade(weights[h * n_q * n_k + i]).rgb, 255], 4 * i);
    }
    paper.putImageData(image, 0, 0);
    const mark = make("div", { class: "chosen-row" });
    const box = make("div", {
      class: "map",
      onpointermove: (event) => {
        const area = canvas.getBoundingClientRect();
        choose(Math.min(n_q - 1, Math.max(0, Math.floor(((event.clientY - area.top) / area.height) * n_q))), false);
      },
      onpointerleave: tell,
    }, canvas, mark);
    const button = make("button", { type: "button", onclick: () => pick(h) }, `head ${h}`);
    return { box, mark, button, whole: make("div", {}, button, box) };
  });

  // The tokens: one tab stop, arrow keys move inside it.
  const tokens = queries.map((label, i) => make("button", {
    type: "button", role: "option", tabindex: -1,
    onpointerenter: () => choose(i, false), onclick: () => choose(i, true), onfocus: () => choose(i, true),
  }, label));
  const list = make("div", { role: "listbox", "aria-label": "query token", "aria-orientation": "horizontal", onkeydown: (event) => {
    const to = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -n_q, End: n_q }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    tokens[Math.min(n_q - 1, Math.max(0, state().row + to))].focus();
  } }, ...tokens);

  const average = make("button", { type: "button", onclick: () => {
    send({ _averaged: !state().averaged });
    draw();
    tell();
  } }, "Average the picked heads");
  const strips = make("div", { class: "strips", tabindex: 0, role: "group", "aria-label": "weights of the chosen token" });
  let lines = [];

  root.append(
    make("style", {}, `.mha .map { position: relative; touch-action: pan-y; border: 1px solid var(--line); width: max-content; }
      .mha .chosen-row { position: absolute; left: -3px; right: -3px; border: 2px solid var(--query); pointer-events: none; }
      .mha [role=option] { margin: 0 2px 4px 0; padding: 1px 6px; }
      .mha [role=option][aria-selected=true] { border: 2px solid var(--query); padding: 0 5px; font-weight: 600; }
      .mha .strips { overflow-x: auto; margin-top: 8px; } .mha .strips td { text-align: center; min-width: 34px; }`),
    make("p", {}, "Choose a query token: hover, click, or use the arrow keys. Rows are queries, columns are keys. Pick heads to compare them below."),
    list, make("div", { class: "parts" }, ...maps.map((map) => map.whole)), scale(), average, strips);

  function choose(row, aloud) {
    if (row !== state().row) {
      send({ _row: row });
      draw();
    }
    if (aloud) tell();
  }

  function pick(head) {
    const { picked } = state();
    const next = picked.includes(head) ? picked.filter((h) => h !== head) : [...picked, head].sort((a, b) => a - b);
    if (next.length === 0) return;
    send({ _picked: next });
    draw();
    tell();
  }

  /** One line of the sentence for each picked head; made again only when their number changes. */
  function lay(count) {
    if (lines.length === count) return;
    lines = Array.from({ length: count }, () => {
      const cells = keys.map(() => make("td"));
      const head = make("th", { scope: "row" });
      return { head, cells, line: make("tr", {}, head, ...cells) };
    });
    strips.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "weights"), ...keys.map((key) => make("th", { scope: "col" }, key)))),
      make("tbody", {}, ...lines.map((line) => line.line))));
  }

  function draw() {
    const now = state();
    maps.forEach(({ mark, button }, h) => {
      mark.style.top = `${(100 * now.row) / n_q}%`;
      mark.style.height = `max(4px, ${100 / n_q}%)`;
      set(button, { "aria-pressed": now.picked.includes(h) });
    });
    tokens.forEach((token, i) => set(token, { "aria-selected": i === now.row, tabindex: i === now.row ? 0 : -1 }));
    set(average, { "aria-pressed": now.averaged });
    const rows = compute(now);
    lay(rows.length);
    rows.forEach((row, r) => {
      say(lines[r].head, now.averaged ? "average" : `head ${now.picked[r]}`);
      row.forEach((weight, j) => {
        const { fill, text } = shade(weight);
        const { style } = lines[r].cells[j];
        style.background = fill;
        style.color = text;
        say(lines[r].cells[j], show(weight));
      });
    });
  }

  function tell() {
    const now = state();
    const said = compute(now).map((row, r) => {
      const most = row.indexOf(Math.max(...row));
      return `${now.averaged ? "average" : `head ${now.picked[r]}`}: ${keys[most]}, ${show(row[most])}`;
    });
    speak(`${queries[now.row]} looks most at ${said.join("; ")}.`);
  }

  draw();
  return follow(model, ["_row", "_picked", "_averaged"], draw);
}

export default { render };
