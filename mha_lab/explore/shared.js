// The parts that all explorables share: elements, style, colours, numbers, the connection to Python.
// Text reaches the page as text nodes only, so a token such as "<img>" is shown as typed.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "line", "circle", "rect", "path", "text", "title", "polygon"]);

/** A new element with attributes, listeners ("onclick") and children (nodes or text). */
export function make(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Change attributes of an element, only if they differ. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Change the text of an element, only if it differs. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Softmax over the visible entries of a row; hidden ones, and a row without any, get 0. */
export function softmax(row, visible = null) {
  const seen = (j) => visible === null || visible[j];
  const top = Math.max(-Infinity, ...row.filter((_, j) => seen(j)));
  const raised = row.map((score, j) => (seen(j) ? Math.exp(score - top) : 0));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((e) => (sum > 0 ? e / sum : 0));
}

/** The dot product of two vectors. */
export function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

/** A number for reading: 2 or 3 digits after the point, a real minus sign, no -0.00. */
export function show(x, digits = 2) {
  const text = x.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "\u2212");
}

// ColorBrewer's "Blues", as in the series' heatmaps: readable without red and green.
const STOPS = "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b".split(" ")
  .map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

/** The colour of a weight from 0 to 1, and black or white, whichever is readable on it. */
export function shade(weight) {
  const at = Math.min(Math.max(weight, 0), 1) * (STOPS.length - 1);
  const i = Math.min(Math.floor(at), STOPS.length - 2);
  const rgb = STOPS[i].map((from, c) => Math.round(from + (STOPS[i + 1][c] - from) * (at - i)));
  const linear = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = dot(linear, [0.2126, 0.7152, 0.0722]);
  return { rgb, fill: `rgb(${rgb.join(",")})`, text: luminance < 0.179 ? "#ffffff" : "#000000" };
}

/** The scale of the colours, once for a whole picture. */
export function scale() {
  const stops = STOPS.map((_, i) => i / (STOPS.length - 1)).map((weight) => shade(weight).fill);
  return make("p", {}, "weight 0 ", make("span", { class: "scale", style: `background: linear-gradient(90deg, ${stops.join(", ")})` }), " 1");
}

/** Redraw when one of these states changes, from here or from Python; returns how to stop. */
export function follow(model, names, draw) {
  for (const name of names) model.on(`change:${name}`, draw);
  return () => names.forEach((name) => model.off(`change:${name}`, draw));
}

/** Sends states to Python, at most every 50 ms; the drawing never waits for it. */
export function sender(model) {
  let timer = null;
  const send = () => {
    timer = null;
    try {
      model.save_changes();
    } catch {
      // No kernel: the picture works without one.
    }
  };
  return (states) => {
    for (const [name, value] of Object.entries(states)) model.set(name, value);
    if (timer === null) timer = setTimeout(send, 50);
  };
}

/** A group of buttons of which one is chosen; arrow keys move, as in any radio group. */
export function choice(label, options, choose) {
  const name = `choice-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value]) =>
    make("input", { type: "radio", name, value, onchange: () => choose(value) }));
  const labels = options.map(([, text], i) => make("label", {}, inputs[i], ` ${text}`));
  const group = make("fieldset", {}, make("legend", {}, label), ...labels);
  return { group, pick: (value) => inputs.forEach((input) => (input.checked = input.value === String(value))) };
}

const STYLE = `
.mha { color: var(--jp-content-font-color1, var(--vscode-foreground, CanvasText));
  --ground: var(--jp-layout-color0, var(--vscode-editor-background, Canvas));
  background: var(--ground); font: 14px/1.4 system-ui, sans-serif; padding: 4px 8px 8px; max-width: 900px;
  --query: #c2410c; --key: #2472b8; --line: #808080; }
.mha * { box-sizing: border-box; }
.mha .parts { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; margin: 8px 0; }
.mha p { margin: 6px 0; }
.mha table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.mha th, .mha td { padding: 2px 8px; text-align: right; font-weight: normal; color: inherit; background: none; }
.mha th[scope=row], .mha caption { text-align: left; }
.mha thead th { border-bottom: 1px solid var(--line); }
.mha fieldset { border: 1px solid var(--line); border-radius: 4px; padding: 0 8px 4px; margin: 0 0 8px; }
.mha legend { padding: 0 4px; }
.mha fieldset label { margin-right: 12px; white-space: nowrap; }
.mha button { font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line);
  border-radius: 4px; padding: 3px 10px; margin: 0 6px 6px 0; cursor: pointer; }
.mha button[aria-pressed=true] { border: 2px solid var(--key); padding: 2px 9px; font-weight: 600; }
.mha input[type=number] { font: inherit; width: 5.5em; color: inherit; background: var(--ground); border: 1px solid var(--line); }
.mha :focus-visible { outline: 3px solid var(--key); outline-offset: 2px; }
.mha text { fill: currentColor; font: 13px system-ui, sans-serif; }
.mha .scale { display: inline-block; width: 120px; height: 12px; border: 1px solid var(--line); vertical-align: middle; }
.mha .bar { height: 12px; background: var(--key); min-width: 1px; }
.mha .track { width: 110px; border: 1px solid var(--line); }
.mha pre { background: none; color: inherit; border: 1px solid var(--line); padding: 6px; overflow-x: auto; margin: 0; }
.mha .quiet { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (prefers-reduced-motion: no-preference) { .mha .moves { transition: transform 0.6s ease; } }
`;

/** The frame of an explorable: style, a name for screen readers, and a line that announces changes. */
export function frame(el, label) {
  const spoken = make("div", { class: "quiet", role: "status", "aria-live": "polite" });
  const root = make("section", { class: "mha", "aria-label": label }, make("style", {}, STYLE));
  el.replaceChildren(root);
  root.append(spoken);
  return { root, speak: (text) => say(spoken, text) };
}
