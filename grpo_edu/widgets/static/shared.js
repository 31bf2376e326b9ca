// What every explorer shares: text, controls, charts, and the loop from a control to the picture.

import { clamp } from "./objective.js";

// ---- text ----

const SIGN = { "-1": "−", 0: "", 1: "+" };
const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function number(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  const shown =
    size < 1e-4 || size >= 1e5
      ? size.toExponential(1).replace("e-", "e−").replace("e+", "e")
      : String(Number(size.toPrecision(3)));
  return (x < 0 ? "−" : "") + shown;
}
const signed = (x) => (x > 0 ? "+" : "") + number(x);
const percent = (x) => {
  const size = 100 * Math.abs(x);
  const digits = size < 9.95 ? 1 : 0;
  const shown = size < 0.05 ? number(Number(size.toPrecision(1))) : size.toFixed(digits);
  return x === 0 ? "0 %" : `${SIGN[Math.sign(x)]}${shown} %`;
};
const MARKS = { 0: ["wrong 0", "✗"], 1: ["right 1", "✓"] };
const mark = (reward) => MARKS[reward]?.[0] ?? `reward ${number(reward)}`;
const named = ({ group, rewards }, i) =>
  `${new Set(group).size > 1 ? `${group[i] + 1}·` : ""}${i + 1} ` +
  (MARKS[rewards[i]]?.[1] ?? number(rewards[i]));

// A table that a screen reader walks through: the first column names the row.
function tableOf(head, lines) {
  const line = ([first, ...rest]) =>
    `<tr><th scope="row">${escaped(first)}</th>${rest.map((x) => `<td>${x}</td>`).join("")}</tr>`;
  const heads = head.map((h) => `<th scope="col">${escaped(h)}</th>`).join("");
  const body = lines.map(line).join("");
  return `<table><thead><tr>${heads}</tr></thead><tbody>${body}</tbody></table>`;
}

// ---- controls: native, labelled, and keeping their keys from the notebook's shortcuts ----

const attributes = (key, label, i) =>
  `data-key="${key}" data-lm-suppress-shortcuts="true" aria-label="${escaped(label)}"` +
  (i === undefined ? "" : ` data-index="${i}"`);
const field = (key, text, more = "") =>
  `<label>${escaped(text)}<input type="number" ${attributes(key, text)} ${more}></label>`;
const tick = (key, text) =>
  `<label class="tick"><input type="checkbox" ${attributes(key, text)}>${escaped(text)}</label>`;
const slider = (key, text, more, label = text, i) =>
  `<label class="slide">${escaped(text)}
  <input type="range" ${attributes(key, label, i)} ${more}><output></output></label>`;
const select = (key, text, options, i) =>
  `<label>${escaped(text)}<select ${attributes(key, text, i)}>` +
  options
    .map(([value, label]) => `<option value="${escaped(value)}">${escaped(label)}</option>`)
    .join("") +
  "</select></label>";
const chooser = (key, noun, specs, many) =>
  [...Array(many).keys()]
    .map((i) =>
      select(
        key,
        `${noun} ${i + 1}`,
        [["none", "none"], ...Object.entries(specs).map(([name, { label }]) => [name, label])],
        i,
      ),
    )
    .join("");
const bar = (...controls) => `<div class="bar">${controls.join("")}</div>`;
const more = (...controls) => `<div class="bar more">${controls.join("")}</div>`; // not in a frame

// Starting points: a choice, and what it sets.
const presetChoice = ({ presets }) =>
  select("preset", "start from", [
    ["", "what is set below"],
    ...Object.keys(presets).map((name) => [name, name]),
  ]);
function presetState(input, { presets }) {
  const { caption: _, ...start } = presets[input.value] ?? {};
  return { ...start, preset: input.value };
}
const FRAME = ["presets", "preset", "compact"];

function parse(input, name, { min, max = Infinity, whole = false, blank = false }) {
  if (blank && input.value === "" && !input.validity.badInput) return null;
  const x = input.value === "" ? NaN : Number(input.value);
  if (x >= min && x <= max && (!whole || Number.isInteger(x))) return x;
  const range = max === Infinity ? `${min} or more` : `${min} to ${max}`;
  const found = input.value === "" ? "not a number" : input.value;
  const kind = whole ? "a whole number, " : "";
  const none = blank ? ", or nothing for the recipe's own" : "";
  throw new Error(`${name} is ${found}: expected ${kind}${range}${none}.`);
}

const chosen = (key, many) => (input, s, i) => ({
  [key]: [...Array(many).keys()]
    .map((j) => (j === Number(i) ? input.value : (s[key][j] ?? "none")))
    .filter((name) => name !== "none"),
});
// What a control of a trait shows; the number of completions and of prompts are worked out.
function traitOf(s, key, i) {
  if (key === "count") return s.rewards.length;
  if (key === "prompts") return new Set(s.group).size > 1;
  return i === undefined ? s[key] : s[key][i];
}
const asNumber = (key, name, limits) => (input) => ({ [key]: parse(input, name, limits) });
const replaced = (values, i, value) => values.map((old, j) => (j === Number(i) ? value : old));
const halves = (n, two) =>
  Array.from({ length: n }, (_, i) => (two && i >= Math.ceil(n / 2) ? 1 : 0));
const grown = (values, n) =>
  Array.from({ length: n }, (_, i) => values[i] ?? values[i % values.length]);

// ---- charts ----

const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2", "12 4"];

// The colour of a signed number: orange up, purple down, on one scale for all panels.
function colour(value, largest) {
  const p = largest > 0 ? (200 * Math.abs(value)) / largest : 0;
  const side = value > 0 ? "up" : "down";
  return p <= 100
    ? `color-mix(in srgb, var(--${side}) ${p}%, var(--zero))`
    : `color-mix(in srgb, var(--${side}-most) ${p - 100}%, var(--${side}))`;
}

function ticks(low, high, about = 5) {
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) =>
    Number(((first + k) * step).toPrecision(12)),
  );
}

const svgLine = (name, x1, x2, y1, y2) =>
  `<line class="${name}" x1="${x1}" x2="${x2}" y1="${y1}" y2="${y2}"/>`;
const svgText = (x, y, anchor, text) =>
  `<text class="soft" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;

/* Lines on one pair of axes. `lines`: [{name, values, at, note}], each with a value per x and one
   at the marker `now`; values beyond the axes are cut off. `title` is what a screen reader says. */
function chart({ width, height = 250, x, y, lines, now, title, id }) {
  const [left, right, top, bottom] = [52, 12, 10, 40];
  const w = width - left - right;
  const h = height - top - bottom;
  const far = 9 * (y.high - y.low);
  const X = (v) => left + ((v - x.low) / (x.high - x.low)) * w;
  const Y = (v) => top + ((y.high - v) / (y.high - y.low)) * h;
  const point = (v, i) =>
    `${X(x.values[i]).toFixed(1)},${Y(clamp(v, y.low - far, y.high + far)).toFixed(1)}`;
  const across = ticks(y.low, y.high).map(
    (v) =>
      svgLine("grid", left, width - right, Y(v), Y(v)) +
      svgText(left - 6, Y(v) + 4, "end", number(v)),
  );
  const along = ticks(x.low, x.high, Math.min(6, w / 50)).map((v) =>
    svgText(X(v), top + h + 15, "middle", number(v)),
  );
  const dot = (line, k) =>
    line.at >= y.low && line.at <= y.high
      ? `<circle cx="${X(now)}" cy="${Y(line.at)}" r="4" fill="${COLOURS[k]}"/>`
      : "";
  const drawn = lines.map((line, k) => {
    const name = escaped(line.name);
    return `<g data-line="${name}" data-at="${line.at}">
    <title>${name}: ${signed(line.at)} at ${x.label} ${number(now)}</title>
    <polyline points="${line.values.map(point).join(" ")}" stroke="${COLOURS[k]}"
    stroke-dasharray="${DASHES[k]}"/>${dot(line, k)}</g>`;
  });
  const zero = y.low < 0 && y.high > 0 ? svgLine("axis", left, width - right, Y(0), Y(0)) : "";
  const bands = (x.bands ?? []).map((v) => svgLine("band", X(v), X(v), top, top + h));
  const said = lines.map((l) => `${escaped(l.name)} ${signed(l.at)}`).join("; ");
  return `<svg role="img" width="${width}" height="${height}">
    <title>${escaped(title)}: ${said}</title>
    <clipPath id="${id}"><rect x="${left}" y="${top}" width="${w}" height="${h}"/></clipPath>
    ${across.join("")}${along.join("")}${zero}${bands.join("")}
    <g class="lines" clip-path="url(#${id})">${drawn.join("")}</g>
    ${svgLine("now", X(now), X(now), top, top + h)}
    ${svgLine("axis", left, width - right, top + h, top + h)}
    ${svgText(left + w / 2, height - 8, "middle", escaped(x.label))}</svg>`;
}

/* Signed bars that lie, one per line, on one scale. `lines`: [{name, value, text, gap}], text in
   place of the number, a gap above; `marks`: [{name, value}], lines across all bars; `names`: room
   for the names. */
function barsOf({ width, lines, marks, title, names: left = 150 }) {
  const [step, right, top] = [22, 64, 6];
  const all = [...lines, ...marks].map(({ value }) => value);
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all)];
  const w = Math.max(60, width - left - right);
  const X = (v) => left + ((v - low) / (high - low || 1)) * w;
  let y = top;
  const drawn = lines.map(({ name, value, text, gap }) => {
    y += gap ? 8 : 0;
    const at = y;
    y += step;
    const [from, to] = [Math.min(X(0), X(value)), Math.max(X(0), X(value))];
    return `<g data-line="${escaped(name)}" data-at="${value}">
      <title>${escaped(name)}: ${text ?? signed(value)}</title>
      <text x="0" y="${at + 15}">${escaped(name)}</text>
      <rect x="${from}" y="${at + 4}" width="${to - from}" height="14" fill="var(--c0)"/>
      <text x="${left + w + 8}" y="${at + 15}">${text ?? signed(value)}</text></g>`;
  });
  const line = ({ name, value }, k) =>
    `<line class="mark" x1="${X(value)}" x2="${X(value)}" y1="${top}" y2="${y}"
    stroke-dasharray="${DASHES[k + 1]}"><title>${escaped(name)} ${number(value)}</title></line>`;
  const said = lines.map((l) => `${escaped(l.name)} ${l.text ?? signed(l.value)}`).join("; ");
  return `<svg role="img" width="${left + w + right}" height="${y + 6}">
    <title>${escaped(title)}: ${said}</title>${drawn.join("")}
    ${svgLine("axis", X(0), X(0), top, y)}${marks.map(line).join("")}</svg>`;
}

// Names of the lines with their pattern, colour, and where they stand at the marker.
function keyOf(lines) {
  const entry = (line, k) => `<li data-name="${escaped(line.name)}">
    <svg width="30" height="10" aria-hidden="true"><line x1="0" x2="30" y1="5" y2="5"
    stroke="${COLOURS[k]}" stroke-dasharray="${DASHES[k]}"/></svg>
    ${escaped(line.label)} <span class="soft">${line.note}</span></li>`;
  return `<ul class="key">${lines.map(entry).join("")}</ul>`;
}

/* While `playing`, moves the slider of trait `key` by one step after a pause; at its end it presses
   the button that plays. */
function advance(root, playing, key) {
  clearTimeout(root.next);
  if (!playing) return;
  const of = root.querySelector(`[data-key="${key}"]`);
  root.next = setTimeout(() => {
    if (!root.isConnected) return;
    if (Number(of.value) >= Number(of.max)) {
      root.querySelector('[data-key="playing"]').click();
      return;
    }
    of.stepUp();
    of.dispatchEvent(new Event("input", { bubbles: true }));
  }, 150);
}
const playButton = (text) => `<button type="button" ${attributes("playing", text)}></button>`;
const playShown = (playing, text) => ({
  value: playing ? "❚❚ pause" : "▶ play",
  label: `${playing ? "pause" : "play"}: ${text}`,
});

// ---- the loop ----

function show(control, { value, text, label, max, off, hidden }) {
  if (hidden !== undefined) control.parentElement.hidden = hidden;
  if (max !== undefined) control.max = max;
  if (off !== undefined) control.setAttribute("aria-disabled", off);
  if (label !== undefined) control.setAttribute("aria-label", label);
  if (["BUTTON", "SPAN"].includes(control.tagName)) control.textContent = value;
  else if (control.type === "checkbox") control.checked = value;
  else if (control.type === "radio") control.checked = control.value === value;
  else if (control.type !== "number" || control.value === "" || Number(control.value) !== value)
    control.value = value ?? "";
  if (control.type === "range") control.nextElementSibling.textContent = text ?? value;
}

/* An explorer. `keys`: the traits; `controls(state)`: HTML of the bars; `rows(state)`: HTML of the
   controls per completion, one entry each; `shown(key, state, index)`: {value, text, label, max,
   off, hidden} of a control; `changes[key](input, state, index)`, or `changes(key, state)` that
   gives it: the traits that an event changes, throws where the input is not a value;
   `answer(state)`: the numbers, throws where the state is wrong; `draw(root, state, answer, id)`:
   the picture; `point(root, state, answer, row)`: what the row under the pointer or the focus says;
   `grips(root, state, put)`: hears what is dragged (grips.js), gives what ends that. */
function explorer(parts) {
  const { keys, controls, rows = () => [], shown, changes, answer, draw, point, grips } = parts;
  return function render({ model, el }) {
    const root = document.createElement("div");
    const id = `e${Math.random().toString(36).slice(2)}`;
    const wrong = new Map(); // control -> message, while its text is no value
    const at = (selector) => root.querySelector(selector);
    const state = () => Object.fromEntries(keys.map((name) => [name, model.get(name)]));
    let now = null;
    let row = 0;
    let busy = false;
    let seen = 0;
    root.className = "grpo-explorer";
    root.innerHTML = `<div class="bars">${controls(state())}</div>
      <p class="caption"></p><div class="rows" role="group" aria-label="each completion"></div>
      <div class="message" role="alert"></div><div class="picture"></div>
      <details><summary ${attributes("", "the numbers as a table")}>the numbers as a table</summary>
      <div class="table"></div></details>`;
    el.append(root);

    function settle(s) {
      // controls follow the state, but for one that is being typed in
      const lines = rows(s);
      if (Number(at(".rows").dataset.count ?? 0) !== lines.length)
        at(".rows").innerHTML = lines.join("");
      at(".rows").dataset.count = lines.length;
      root.querySelectorAll("[data-key]:not(summary)").forEach((control) => {
        if (!wrong.has(control.dataset.key))
          show(control, shown(control.dataset.key, s, control.dataset.index));
      });
    }

    function redraw() {
      const s = state();
      root.classList.toggle("compact", Boolean(s.compact));
      at(".caption").textContent = s.presets?.[s.preset]?.caption ?? "";
      let message = [...wrong.values()].join(" ");
      try {
        settle(s);
        now = message ? null : answer(s);
      } catch (error) {
        [message, now] = [error.message, null];
      }
      at("details").hidden = now === null;
      at(".picture").hidden = now === null;
      at(".message").textContent = message;
      if (now === null) {
        at(".picture").innerHTML = "";
        at(".table").innerHTML = "";
        return;
      }
      draw(root, s, now, id);
      row = Math.min(row, rows(s).length - 1);
      point?.(root, s, now, row);
    }

    function put(changed) {
      busy = true;
      Object.entries(changed).forEach(([trait, value]) => model.set(trait, value));
      model.save_changes();
      busy = false;
      redraw();
    }

    function change(event) {
      const { key: name, index } = event.target.closest("[data-key]")?.dataset ?? {};
      const changer = typeof changes === "function" ? changes(name, state()) : changes[name];
      if (!changer || (event.type === "click") !== (event.target.closest("button") !== null))
        return;
      wrong.delete(name);
      try {
        put(changer(event.target, state(), index));
      } catch (error) {
        wrong.set(name, error.message);
        redraw();
      }
    }

    function over(event) {
      const index =
        event.target.closest?.("[data-row]")?.dataset.row ??
        event.target.closest?.(".rows [data-index]")?.dataset.index;
      if (!point || index === undefined || now === null) return;
      row = Number(index);
      point(root, state(), now, row);
    }
    const heard = () => {
      if (busy) return;
      wrong.clear();
      redraw();
    };
    const watch = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - seen) > 1) redraw();
      seen = entry.contentRect.width;
    });
    Object.entries({ input: change, click: change, pointerover: over, focusin: over }).forEach(
      ([name, f]) => root.addEventListener(name, f),
    );
    keys.forEach((name) => model.on(`change:${name}`, heard));
    redraw();
    watch.observe(root);
    const release = grips?.(root, state, put);
    return () => {
      release?.();
      watch.disconnect();
      keys.forEach((name) => model.off(`change:${name}`, heard));
    };
  };
}

export {
  FRAME,
  advance,
  asNumber,
  attributes,
  bar,
  barsOf,
  chart,
  chooser,
  chosen,
  colour,
  escaped,
  explorer,
  field,
  grown,
  halves,
  keyOf,
  mark,
  more,
  named,
  number,
  parse,
  percent,
  playButton,
  playShown,
  presetChoice,
  presetState,
  replaced,
  select,
  signed,
  slider,
  tableOf,
  tick,
  traitOf,
};
