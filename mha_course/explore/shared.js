// What all explorables share: elements, style, colours, numbers, the way to Python.
// Texts are text nodes only, so a token such as "<img>" is shown as typed.
import { COLOURS } from "./colours.js";
export { COLOURS };
const TEXT = {
  wide: "a table that scrolls sideways", cut: "Scroll sideways to see all of it.",
  twin: "{name} (index {i})",
  weight: "weight 0",
  whole: "For {name}, choose a whole number from {low:0} to {high:0}. Now it is {text}.",
  number: "For {name}, choose a number from {low:0} to {high:0}. Now it is {text}.",
  back: "Back", next: "Next", start: "This is the start.", end: "This is the end.",
  try: "Try", tries: "Try (a tick stays until Reset):", reset: "Reset",
  reached: "Reached: {text} {answer}",
};
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "line", "circle", "rect", "path", "text", "tspan", "title"]);
const SHAPES = { "●": "query", "■": "key", "▲": "value" };

/** A text as nodes: a shape has its colour, and is not read aloud. */
function inked(text, svg) {
  return String(text).split(/([●■▲])/).filter(Boolean).map((part) => {
    if (!(part in SHAPES)) return part;
    const shape = make(svg ? "tspan" : "span", { style: `color: var(--${SHAPES[part]}); fill: var(--${SHAPES[part]})`, "aria-hidden": true });
    shape.textContent = part;
    return shape;
  });
}

/** A text without these shapes, for attributes. */
export function plain(text) {
  return text.replace(/[●■▲]\s?/g, "");
}

/** A new element: attributes, listeners ("onclick"), children (nodes or text). */
export function make(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flatMap((child) => (child === null ? [] : child instanceof Node ? child : inked(child, SVG_TAGS.has(tag)))));
  return node;
}

/** A box for what can be wider than the page: then it says so, and arrow keys scroll it. */
export function wide(content) {
  const box = make("div", { class: "wide" }, content);
  const watch = new ResizeObserver(() => {
    const cut = box.classList.toggle("cut", box.scrollWidth > box.clientWidth + 1);
    if (box.querySelector("button, input")) return; // these scroll it
    const told = { tabindex: 0, role: "group", "aria-label": TEXT.wide };
    for (const name in told) cut ? box.setAttribute(name, told[name]) : box.removeAttribute(name);
  });
  [box, content].forEach((each) => watch.observe(each));
  return box;
}

/** Change attributes of an element if they differ. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Change the text of an element if it differs. */
export function say(node, text) {
  if (node.textContent === String(text)) return;
  const parts = inked(text, node instanceof SVGElement);
  const [only, more] = node.childNodes;
  if (only instanceof Text && !more && parts.length === 1 && typeof parts[0] === "string") only.data = parts[0];
  else node.replaceChildren(...parts);
}

/** Softmax over the visible entries of a row; hidden ones get 0. */
export function softmax(row, visible = null) {
  const seen = (j) => visible?.[j] ?? true;
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
  return (Number(text) ? text : text.replace("-", "")).replace("-", "−");
}

/** Names, with the index of each that is there twice. */
export function unlike(names) {
  return names.map((name, i) => (names.indexOf(name) === names.lastIndexOf(name) ? name : fill(TEXT.twin, { name, i })));
}

/** A vector for reading; one number has no brackets. */
export function vector(row) {
  return row.length === 1 ? show(row[0]) : `(${row.map((x) => show(x)).join(", ")})`;
}

/** A text with its named places filled: {x:2} shows two digits. */
export const fill = (text, given) => text.replace(/{(\w+):?(\d?)}/g, (_, name, n) => (n ? show(given[name], n) : given[name]));

/** The nearest number in a range. */
export function clip(x, low = 0, high = 1) {
  return Math.min(Math.max(x, low), high);
}

/** The sum of vectors. */
export function add(rows) {
  return rows[0].map((_, c) => rows.reduce((sum, row) => sum + row[c], 0));
}

/** A list of what `part` gives for 0, 1, 2 and so on. */
export function each(count, part) {
  return Array.from({ length: count }, (_, i) => part(i));
}

/** The number at a part u of the way from a to b. */
export function between(a, b, u) {
  return a + (b - a) * u;
}

/** A part of the way, slow at its start and end. */
export function ease(u) {
  return u * u * (3 - 2 * u);
}

/** A bar; its width may be negative, to the left. */
export function box(x, y, width, height, fill, opacity = 1) {
  return make("rect", { x: Math.min(x, x + width), y, width: Math.abs(width), height, fill, opacity });
}

/** A text in a picture. */
export function word(x, y, text, opacity = 1, anchor = "start") {
  return make("text", { x, y, opacity, "text-anchor": anchor }, text);
}

/** An upright line. */
export function rule(x, y1, y2, opacity = 1) {
  return make("line", { x1: x, x2: x, y1, y2, stroke: "var(--line)", opacity });
}

/** A curved band from left to right, with a thickness at each end. */
export function band(x0, y0, t0, x1, y1, t1, fill, opacity) {
  const [m, a, b] = [(x0 + x1) / 2, t0 / 2, t1 / 2];
  return make("path", { fill, opacity, d: `M${x0} ${y0 - a}C${m} ${y0 - a} ${m} ${y1 - b} ${x1} ${y1 - b}V${y1 + b}C${m} ${y1 + b} ${m} ${y0 + a} ${x0} ${y0 + a}Z` });
}

/** Give an element the colour of a weight from 0 to 1; null takes it away. */
export function shade(node, weight) {
  node.toggleAttribute("data-shaded", weight !== null);
  if (weight !== null) node.style.setProperty("--w", clip(weight).toFixed(2)); // so that few elements change
}

/** A canvas with a pixel for each cell: `at(i, j)` is a number from -1 to 1; null is hidden. */
export function paint(canvas, rows, columns, inks, at, ink = "weight") {
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  const paper = canvas.getContext("2d");
  const image = paper.createImageData(columns, rows);
  const [{ data }, less, more, grey] = [image, inks.minus, inks[ink], [128, 128, 128]];
  for (let i = 0, p = 0; i < rows; i += 1) {
    for (let j = 0; j < columns; j += 1, p += 4) {
      const x = at(i, j);
      const colour = x === null ? grey : x < 0 ? less : more;
      for (let c = 0; c < 3; c += 1) data[p + c] = colour[c];
      data[p + 3] = 255 * (x === null ? 0.35 : Math.min(1, Math.abs(x)));
    }
  }
  paper.putImageData(image, 0, 0);
}

/** The scale of the colours: of weights, or of numbers from -limit to limit. */
export function scale(limit = null) {
  const end = (x) => show(x, Number.isInteger(x) ? 0 : 2);
  const [from, colours, to] = limit === null ? [TEXT.weight, "var(--ground), var(--weight)", 1] : [end(-limit), "var(--minus), var(--ground), var(--plus)", end(limit)];
  return make("p", {}, `${from} `, make("span", { class: "scale", style: `background: linear-gradient(90deg, ${colours})` }), ` ${to}`);
}

/** Redraw when one of these states changes, from here or from Python; returns how to stop. */
export function follow(model, names, draw) {
  for (const name of names) model.on(`change:${name}`, draw);
  return () => names.forEach((name) => model.off(`change:${name}`, draw));
}

/** Sends states to Python at most every 50 ms; no drawing waits. */
export function sender(model, el) {
  let timer = null;
  const send = () => {
    timer = null;
    try {
      model.save_changes();
    } catch {} // No kernel: it works without one.
  };
  return (states) => {
    for (const [name, value] of Object.entries(states)) model.set(name, value);
    el.dispatchEvent(new CustomEvent("mha-state", { bubbles: true, detail: model }));
    timer ??= setTimeout(send, 50);
  };
}

/** A group of radio buttons. */
export function choice(label, options, choose) {
  const name = `choice-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value]) => make("input", { type: "radio", name, value, onchange: () => choose(value) }));
  const labels = options.map(([, text], i) => make("label", {}, inputs[i], ` ${text}`));
  return { group: make("fieldset", {}, make("legend", {}, label), ...labels), pick: (value) => inputs.forEach((input) => (input.checked = input.value === String(value))) };
}

/** A handle over a slider moves by as much as the finger does sideways; a swipe up or down scrolls the page.
 * `begin` returns what `move` (with the way in px) and `end` (with whether the page was scrolled) get back. */
export function handle(begin, move, end) {
  let from = null;
  const finish = (scrolls) => {
    if (from) end(from.kept, scrolls);
    from = null;
  };
  const node = make("div", {
    class: "handle",
    onpointerdown: (event) => {
      if (event.button > 0) return;
      event.preventDefault();
      node.setPointerCapture(event.pointerId);
      from = { x: event.clientX, at: event.clientX, kept: begin() };
    },
    onpointermove: ({ clientX }) => { if (from && clientX !== from.at) move((from.at = clientX) - from.x, from.kept); },
    onpointerup: () => finish(false),
    onpointercancel: () => finish(true),
  });
  return node;
}

/** The look of a slider's thumb, in every browser. */
export function thumb(slider, look) {
  return ["-webkit-slider", "-moz-range"].map((kind) => `${slider}::${kind}-thumb { appearance: none; box-sizing: border-box; ${look} }`).join("\n");
}

/** A key on a slider moves it: an arrow by `small`, a page key, or an arrow with Shift, by `large`. */
export function leap(event, small, large, move) {
  const way = { ArrowRight: 1, ArrowUp: 1, PageUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: -1 }[event.key];
  if (way === undefined) return;
  event.preventDefault();
  move(way * (event.shiftKey || event.key.startsWith("Page") ? large : small));
}

/** The number in a field, whole if it has no step: the nearest in its range, or `old` for no number; `note` says so. */
export function within(input, old, note, name) {
  const [low, high, typed, digits] = [Number(input.min), Number(input.max), input.valueAsNumber, input.step ? 2 : 0];
  const kept = Number.isNaN(typed) ? old : clip(digits ? typed : Math.round(typed), low, high);
  const text = show(kept, digits);
  input.value = text.replace("−", "-");
  say(note, typed === kept ? "" : fill(TEXT[digits ? "number" : "whole"], { name, low, high, text }));
  return kept;
}

/** Buttons Back and Next, and why one does nothing now: `at` gets whether this is the start, and the end. */
export function paces(go) {
  const why = make("span", { id: `why-${Math.random().toString(36).slice(2)}` });
  const [back, next] = [[-1, TEXT.back], [1, TEXT.next]].map(([way, text]) => make("button", {
    type: "button", "aria-describedby": why.id,
    onclick: ({ target }) => { if (target.getAttribute("aria-disabled") !== "true") go(way); },
  }, text));
  return { back, next, why, at: (start, end) => {
    set(back, { "aria-disabled": start });
    set(next, { "aria-disabled": end });
    say(why, start ? TEXT.start : end ? TEXT.end : "");
  } };
}

/** Goals to try: each is a sentence, a test of the state, and perhaps what is seen then. Those already met are left out. */
export function goals(all, now) {
  const open = all.filter(([, met]) => !met(now));
  const lines = open.map(([text]) => make("li", {}, text));
  const mark = (i, done) => {
    set(lines[i], { class: done ? "done" : "" });
    const [text, , answer = ""] = open[i];
    say(lines[i], done ? fill(TEXT.reached, { text, answer }).trim() : text);
  };
  const list = make("ul", { "aria-live": "polite", "aria-label": TEXT.try }, ...lines);
  return {
    node: make("div", { class: "goals" }, ...(open.length ? [TEXT.tries, list] : [])),
    look: (now) => open.forEach(([, met], i) => { if (met(now)) mark(i, true); }),
    clear: () => open.forEach((_, i) => mark(i, false)),
  };
}

/** A button that brings these states back to now; `then` does the rest. */
export function reset(model, names, send, then) {
  const start = Object.fromEntries(names.map((name) => [name, model.get(name)]));
  return make("button", { type: "button", onclick: () => { send(start); then(); } }, TEXT.reset);
}

// An explorable's own rule must be stronger, not only later.
const vars = (theme) => Object.entries(COLOURS[theme]).map(([name, hex]) => `--${name}: ${hex};`).join(" ");
const STYLE = `
@keyframes mha-here { }
@property --w { syntax: "*"; inherits: false; }
.mha { color: var(--jp-content-font-color1, var(--vscode-foreground, CanvasText));
  --ground: var(--jp-layout-color0, var(--vscode-editor-background, Canvas));
  background: var(--ground); font: 14px/1.4 system-ui, sans-serif; padding: 4px 8px 8px; max-width: 900px;
  --line: #808080; --target: 0px; container: mha / inline-size; accent-color: var(--accent); transition: background-color 1ms; animation: mha-here 1ms; --on-empty: #000; --on-full: #fff; ${vars("light")}
&[data-dark=true] { color-scheme: dark; --on-empty: #fff; --on-full: #000; ${vars("dark")} }
[data-shaded] { background-color: color-mix(in srgb, var(--weight) calc(100% * var(--w)), var(--ground));
  color: color-mix(in srgb, var(--on-full) clamp(0%, 999900% * (var(--w) - var(--turn)), 100%), var(--on-empty)); }
@media (pointer: coarse) { & { --target: 44px; } }
* { box-sizing: border-box; }
:where(.parts) { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; margin: 8px 0; }
p { margin: 6px 0; }
.wide { overflow-x: auto; max-width: 100%; &.cut::before { content: "↔\\a0 ${TEXT.cut}"; position: sticky; left: 0; display: block; width: max-content; font-size: 12px; }
tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--ground); } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 8px; text-align: right; font-weight: normal; }
th[scope=row], caption { text-align: left; }
thead th { border-bottom: 1px solid var(--line); }
fieldset, button, select, :where(input[type=number]), .scale, .track, pre { border: 1px solid var(--line); }
button, select, option, :where(input[type=number]) { color: inherit; background: var(--ground); }
fieldset label, :where(button, select, input[type=number]) { min-width: var(--target); min-height: var(--target); }
fieldset { border-radius: 4px; padding: 0 8px 4px; margin: 0 0 8px; }
legend { padding: 0 4px; }
fieldset label { display: inline-flex; gap: 5px; align-items: center; margin-right: 12px; white-space: nowrap; }
button, select { font: inherit; border-radius: 4px; padding: 3px 10px; margin: 0 6px 6px 0; cursor: pointer; }
:where(button)[aria-pressed=true] { border: 2px solid var(--accent); padding: 2px 9px; text-shadow: 0.4px 0, -0.4px 0; }
:is(button:disabled, [aria-disabled=true]) { opacity: 0.5; border-style: dashed; cursor: not-allowed; }
select { max-width: 12em; }
:where(input[type=number]) { font-family: inherit; width: 5.5em; }
.goals { margin: 8px 0; ul { list-style: none; margin: 0; padding: 0; } li { margin: 2px 0; padding-left: 1.5em; text-indent: -1.5em; }
li::before { content: "○"; display: inline-block; width: 1.5em; text-indent: 0; } .done::before { content: "✓"; font-weight: bold; } }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
:where(text) { fill: currentColor; font: 13px system-ui, sans-serif; }
.scale { display: inline-block; width: 120px; height: 12px; vertical-align: middle; }
.bar { height: 12px; background: var(--weight); min-width: 1px; }
.track { width: 110px; }
th, td, pre { color: inherit; background: none; }
pre { padding: 6px; overflow-x: auto; margin: 0; }
.quiet { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@container mha (width < 640px) { > * { --target: 44px; } :is(input, select) { font-size: 16px; } }
@media (prefers-reduced-motion: no-preference) { .moves { transition: transform 0.6s ease; } }
}
`;

/** The weight from which on a number has the other one of black and white: the ramp's luminance (WCAG 2.2) is then 0.179. */
function turn(ground, full) {
  const dark = (w) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
    const c = (ground[i] + w * (full[i] - ground[i])) / 255;
    return sum + share * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0) < 0.179;
  let [low, high] = [0, 1];
  for (let i = 0; i < 16; i += 1) {
    const middle = (low + high) / 2;
    if (dark(middle) === dark(0)) low = middle;
    else high = middle;
  }
  return high;
}

/** The frame of an explorable: style, a name, a line that announces changes. `inks` are the theme's colours for `paint`;
 * `repaint` is called when they change, and when the frame comes into the page. */
export function frame(el, label, repaint = () => {}) {
  const spoken = make("div", { class: "quiet", role: "status", "aria-live": "polite" });
  const root = make("div", { class: "mha", role: "group", "aria-label": label }, make("style", {}, STYLE));
  el.replaceChildren(root);
  root.append(spoken);
  const pixel = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const inks = {};
  /** A theme is dark if the page's ground is. */
  const look = () => {
    for (const ground of ["#fff", getComputedStyle(root).backgroundColor]) pixel.fillStyle = ground; // "" outside a page
    pixel.fillRect(0, 0, 1, 1);
    const [r, g, b] = pixel.getImageData(0, 0, 1, 1).data;
    const theme = r + g + b < 384 ? "dark" : "light";
    set(root, { "data-dark": theme === "dark" });
    for (const [name, hex] of Object.entries(COLOURS[theme])) inks[name] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    root.style.setProperty("--turn", turn([r, g, b], inks.weight));
  };
  look();
  for (const change of ["animationstart", "transitionend"]) {
    root.addEventListener(change, ({ target }) => {
      if (target !== root) return;
      root.closest(".jp-Notebook")?.classList.add("mha-lab");
      look();
      repaint();
    });
  }
  let before = null; // of a slider: scrolling from there does not move it
  root.addEventListener("pointerdown", ({ target }) => { before = target.type === "range" ? target.value : null; });
  root.addEventListener("pointercancel", ({ target }) => {
    if (before === null) return;
    target.value = before;
    target.dispatchEvent(new Event("input", { bubbles: true }));
  });
  // Most keys are for this element: Jupyter would move to another cell. Notebook 7 hears them first.
  const own = ({ ctrlKey, metaKey, altKey, shiftKey, key }) => !ctrlKey && !metaKey && !altKey && key !== "Escape" && !(shiftKey && key === "Enter");
  const guard = (event) => event.target.toggleAttribute("data-lm-suppress-shortcuts", own(event));
  root.addEventListener("focusin", () => addEventListener("keydown", guard, true));
  root.addEventListener("focusout", () => removeEventListener("keydown", guard, true));
  root.addEventListener("keydown", (event) => { if (own(event)) event.stopPropagation(); });
  return { root, inks, speak: (text) => say(spoken, text) };
}
