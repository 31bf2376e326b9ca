// What every explorer shares: text, controls, charts, the loop from a control to the picture, and the look.

// ---- text ----

const SIGN = { "-1": "−", 0: "", 1: "+" };
const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function number(x) {
  if (x === 0) return "0";
  const size = Math.abs(x), shown = size < 1e-4 || size >= 1e5 ? size.toExponential(1).replace("e-", "e−").replace("e+", "e") : String(Number(size.toPrecision(3)));
  return (x < 0 ? "−" : "") + shown;
}
const signed = (x) => (x > 0 ? "+" : "") + number(x);
const percent = (x) => {
  const size = 100 * Math.abs(x), shown = size < 9.95 ? size.toFixed(1) : Math.round(size);
  return x === 0 ? "0 %" : `${SIGN[Math.sign(x)]}${shown} %`;
};
const mark = (reward) => (reward === 1 ? "right 1" : reward === 0 ? "wrong 0" : `reward ${number(reward)}`);
const named = ({ group, rewards }, i) => `${new Set(group).size > 1 ? `${group[i] + 1}·` : ""}${i + 1} ` +
  (rewards[i] === 1 ? "✓" : rewards[i] === 0 ? "✗" : number(rewards[i]));

// A table that a screen reader walks through: the first column names the row.
function tableOf(head, lines) {
  const line = ([first, ...rest]) => `<tr><th scope="row">${escape(first)}</th>${rest.map((x) => `<td>${x}</td>`).join("")}</tr>`;
  return `<table><thead><tr>${head.map((h) => `<th scope="col">${escape(h)}</th>`).join("")}</tr></thead><tbody>${lines.map(line).join("")}</tbody></table>`;
}

// ---- controls: native, labelled, and keeping their keys from the notebook's shortcuts ----

const attributes = (key, label, i) => `data-key="${key}" data-lm-suppress-shortcuts="true" aria-label="${escape(label)}"` + (i === undefined ? "" : ` data-index="${i}"`);
const field = (key, text, more = "") => `<label>${escape(text)}<input type="number" ${attributes(key, text)} ${more}></label>`;
const tick = (key, text) => `<label class="tick"><input type="checkbox" ${attributes(key, text)}>${escape(text)}</label>`;
const slider = (key, text, more, label = text, i) => `<label class="slide">${escape(text)}<input type="range" ${attributes(key, label, i)} ${more}><output></output></label>`;
const select = (key, text, options, i) => `<label>${escape(text)}<select ${attributes(key, text, i)}>` +
  options.map(([value, label]) => `<option value="${escape(value)}">${escape(label)}</option>`).join("") + "</select></label>";
const chooser = (key, noun, specs, many) => [...Array(many).keys()].map((i) =>
  select(key, `${noun} ${i + 1}`, [["none", "none"], ...Object.entries(specs).map(([name, { label }]) => [name, label])], i)).join("");
const bar = (...controls) => `<div class="bar">${controls.join("")}</div>`;

function parse(input, name, { min, max = Infinity, whole = false, blank = false }) {
  if (blank && input.value === "" && !input.validity.badInput) return null;
  const x = input.value === "" ? NaN : Number(input.value);
  if (x >= min && x <= max && (!whole || Number.isInteger(x))) return x;
  const range = max === Infinity ? `${min} or more` : `${min} to ${max}`;
  throw new Error(`${name} is ${input.value === "" ? "not a number" : input.value}: expected ${whole ? "a whole number, " : ""}${range}${blank ? ", or nothing for the recipe's own" : ""}.`);
}

const chosen = (key, many) => (input, s, i) => ({
  [key]: [...Array(many).keys()].map((j) => (j === Number(i) ? input.value : s[key][j] ?? "none")).filter((name) => name !== "none"),
});
const asNumber = (key, name, limits) => (input) => ({ [key]: parse(input, name, limits) });
const replaced = (values, i, value) => values.map((old, j) => (j === Number(i) ? value : old));
const halves = (n, two) => Array.from({ length: n }, (_, i) => (two && i >= Math.ceil(n / 2) ? 1 : 0));
const grown = (values, n) => Array.from({ length: n }, (_, i) => values[i] ?? values[i % values.length]);

// ---- charts ----

const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"], DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2", "12 4"];

// The colour of a signed number: orange up, purple down, on one scale for all panels.
function colour(value, largest) {
  const p = largest > 0 ? (200 * Math.abs(value)) / largest : 0, side = value > 0 ? "up" : "down";
  return p <= 100 ? `color-mix(in srgb, var(--${side}) ${p}%, var(--zero))` : `color-mix(in srgb, var(--${side}-most) ${p - 100}%, var(--${side}))`;
}

function ticks(low, high, about = 5) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

/* Lines on one pair of axes. `lines`: [{name, values, at, note}], each with a value per x and one at the marker `now`; values beyond the
   axes are cut off. `title` is what a screen reader says. */
function chart({ width, height = 250, x, y, lines, now, title, id }) {
  const [left, right, top, bottom] = [52, 12, 10, 40], w = width - left - right, h = height - top - bottom;
  const X = (v) => left + ((v - x.low) / (x.high - x.low)) * w, Y = (v) => top + ((y.high - v) / (y.high - y.low)) * h;
  const point = (v, i) => `${X(x.values[i]).toFixed(1)},${Y(clamp(v, y.low - 9 * (y.high - y.low), y.high + 9 * (y.high - y.low))).toFixed(1)}`;
  const across = ticks(y.low, y.high).map((v) => `<line class="grid" x1="${left}" x2="${width - right}" y1="${Y(v)}" y2="${Y(v)}"/>
    <text class="soft" x="${left - 6}" y="${Y(v) + 4}" text-anchor="end">${number(v)}</text>`);
  const along = ticks(x.low, x.high, Math.min(6, w / 50)).map((v) => `<text class="soft" x="${X(v)}" y="${top + h + 15}" text-anchor="middle">${number(v)}</text>`);
  const drawn = lines.map((line, k) => `<g data-line="${escape(line.name)}" data-at="${line.at}"><title>${escape(line.name)}: ${signed(line.at)} at ${x.label} ${number(now)}</title>
    <polyline points="${line.values.map(point).join(" ")}" stroke="${COLOURS[k]}" stroke-dasharray="${DASHES[k]}"/>
    ${line.at >= y.low && line.at <= y.high ? `<circle cx="${X(now)}" cy="${Y(line.at)}" r="4" fill="${COLOURS[k]}"/>` : ""}</g>`);
  const zero = y.low < 0 && y.high > 0 ? `<line class="axis" x1="${left}" x2="${width - right}" y1="${Y(0)}" y2="${Y(0)}"/>` : "";
  return `<svg role="img" width="${width}" height="${height}"><title>${escape(title)}: ${lines.map((l) => `${escape(l.name)} ${signed(l.at)}`).join("; ")}</title>
    <clipPath id="${id}"><rect x="${left}" y="${top}" width="${w}" height="${h}"/></clipPath>${across.join("")}${along.join("")}${zero}
    ${(x.bands ?? []).map((v) => `<line class="band" x1="${X(v)}" x2="${X(v)}" y1="${top}" y2="${top + h}"/>`).join("")}
    <g class="lines" clip-path="url(#${id})">${drawn.join("")}</g><line class="now" x1="${X(now)}" x2="${X(now)}" y1="${top}" y2="${top + h}"/>
    <line class="axis" x1="${left}" x2="${width - right}" y1="${top + h}" y2="${top + h}"/>
    <text class="soft" x="${left + w / 2}" y="${height - 8}" text-anchor="middle">${escape(x.label)}</text></svg>`;
}

// Names of the lines with their pattern, colour, and where they stand at the marker.
const key = (lines) => `<ul class="key">${lines.map((line, k) => `<li data-name="${escape(line.name)}"><svg width="30" height="10" aria-hidden="true"><line x1="0" x2="30" y1="5" y2="5"
  stroke="${COLOURS[k]}" stroke-dasharray="${DASHES[k]}"/></svg>${escape(line.label)} <span class="soft">${line.note}</span></li>`).join("")}</ul>`;

// ---- the loop ----

function show(control, { value, text, label, max }) {
  if (max !== undefined) control.max = max;
  if (label !== undefined) control.setAttribute("aria-label", label);
  if (["BUTTON", "SPAN"].includes(control.tagName)) control.textContent = value;
  else if (control.type === "checkbox") control.checked = value;
  else if (control.type !== "number" || control.value === "" || Number(control.value) !== value) control.value = value ?? "";
  if (control.type === "range") control.nextElementSibling.textContent = text ?? value;
}

/* An explorer. `keys`: the traits; `controls(state)`: HTML of the bars; `rows(state)`: HTML of the controls per completion, one entry
   each; `shown(key, state, index)`: {value, text, label} of a control; `changes[key](input, state, index)`, or `changes(key, state)`
   that gives it: the traits that an event changes, throws where the input is not a value; `answer(state)`: the numbers, throws where the state is wrong; `draw(root, state,
   answer, id)`: the picture; `point(root, state, answer, row)`: what the row under the pointer or the focus says. */
function explorer({ keys, controls, rows = () => [], shown, changes, answer, draw, point }) {
  return function render({ model, el }) {
    const root = document.createElement("div"), id = `e${Math.random().toString(36).slice(2)}`;
    const wrong = new Map(), at = (selector) => root.querySelector(selector); // wrong: control -> message, while its text is no value
    const state = () => Object.fromEntries(keys.map((name) => [name, model.get(name)]));
    let now = null, row = 0, busy = false, seen = 0;
    root.className = "grpo-explorer";
    root.innerHTML = `<style>${CSS}</style><div class="bars">${controls(state())}</div><div class="rows" role="group" aria-label="each completion"></div>
      <div class="message" role="alert"></div><div class="picture"></div>
      <details><summary ${attributes("", "the numbers as a table")}>the numbers as a table</summary><div class="table"></div></details>`;
    el.append(root);

    function settle(s) { // controls follow the state, but for one that is being typed in
      const lines = rows(s);
      if (Number(at(".rows").dataset.count ?? 0) !== lines.length) at(".rows").innerHTML = lines.join("");
      at(".rows").dataset.count = lines.length;
      root.querySelectorAll("[data-key]:not(summary)").forEach((control) => {
        if (!wrong.has(control.dataset.key)) show(control, shown(control.dataset.key, s, control.dataset.index));
      });
    }

    function redraw() {
      const s = state();
      let message = [...wrong.values()].join(" ");
      try {
        settle(s);
        now = message ? null : answer(s);
      } catch (error) {
        [message, now] = [error.message, null];
      }
      at("details").hidden = at(".picture").hidden = now === null;
      at(".message").textContent = message;
      if (now === null) at(".picture").innerHTML = at(".table").innerHTML = "";
      else draw(root, s, now, id);
      if (now !== null && point) point(root, s, now, (row = Math.min(row, rows(s).length - 1)));
    }

    function change(event) {
      const { key: name, index } = event.target.closest("[data-key]")?.dataset ?? {};
      const changer = typeof changes === "function" ? changes(name, state()) : changes[name];
      if (!changer || (event.type === "click") !== (event.target.closest("button") !== null)) return;
      wrong.delete(name);
      try {
        const changed = changer(event.target, state(), index);
        busy = true;
        Object.entries(changed).forEach(([trait, value]) => model.set(trait, value));
        model.save_changes();
      } catch (error) {
        wrong.set(name, error.message);
      }
      busy = false;
      redraw();
    }

    function over(event) {
      const found = event.target.closest?.("[data-row]")?.dataset.row ?? event.target.closest?.(".rows [data-index]")?.dataset.index;
      if (point && found !== undefined && now !== null) point(root, state(), now, (row = Number(found)));
    }
    const heard = () => busy || (wrong.clear(), redraw());
    const watch = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - seen) > 1) redraw();
      seen = entry.contentRect.width;
    });
    Object.entries({ input: change, click: change, pointerover: over, focusin: over }).forEach(([name, f]) => root.addEventListener(name, f));
    keys.forEach((name) => model.on(`change:${name}`, heard));
    redraw();
    watch.observe(root);
    return () => {
      watch.disconnect();
      keys.forEach((name) => model.off(`change:${name}`, heard));
    };
  };
}

// ---- the look ----

const CSS = `
.grpo-explorer { --text: var(--jp-ui-font-color1, #222); --quiet: var(--jp-ui-font-color2, #595959); --line: #b4b4b4; --shade: #0000000d;
  --zero: #f7f7f7; --up: #f1a340; --up-most: #b35806; --down: #998ec3; --down-most: #542788; --warn: #a4262c; --accent: #2a78d6; color-scheme: light;
  --c0: #3f7ae8; --c1: #d97a00; --c2: #d01f30; --c3: #964a8b; --c4: #6f6f76; --c5: #6a14d1;
  color: var(--text); background: transparent; font: 13px/1.4 system-ui, sans-serif; font-variant-numeric: tabular-nums; padding: 4px; container-type: inline-size; }
[data-jp-theme-light="false"] .grpo-explorer, .vscode-dark .grpo-explorer { --text: var(--jp-ui-font-color1, #e4e4e4);
  --quiet: var(--jp-ui-font-color2, #b0b0b0); --line: #777; --shade: #ffffff14; --zero: #333; --up: #b5691a; --up-most: #ffbe6b;
  --down: #7563ad; --down-most: #cdbffb; --warn: #ff9a9a; --accent: #8ab8f0; color-scheme: dark;
  --c0: #7aa8ff; --c1: #ffb14d; --c2: #ff7a80; --c3: #d893cd; --c4: #b9b9bf; --c5: #b48cff; }
.grpo-explorer .bar { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: end; margin-bottom: 10px; }
.grpo-explorer .bar label { display: grid; gap: 2px; color: var(--quiet); font-size: 12px; }
.grpo-explorer .bar label.tick { display: flex; gap: 5px; align-items: center; color: var(--text); padding-bottom: 4px; }
.grpo-explorer .bar label.slide { grid-template-columns: max-content minmax(120px, 1fr) 5ch; gap: 8px; align-items: center; color: var(--text); flex: 1 1 260px; max-width: 420px; }
.grpo-explorer :is(select, button, input[type="number"]) { font: inherit; font-size: 13px; color: var(--text); padding: 3px 6px; box-sizing: border-box;
  background: transparent; border: 1px solid var(--line); border-radius: 4px; }
.grpo-explorer select option { color: CanvasText; background: Canvas; }
.grpo-explorer select { min-width: 150px; max-width: 100%; }
.grpo-explorer input[type="number"] { width: 92px; }
.grpo-explorer :is(select, button, input):focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.grpo-explorer input { margin: 0; accent-color: var(--accent); }
.grpo-explorer .rows { display: grid; grid-template-columns: max-content 88px minmax(0, 1fr) minmax(0, 1fr); gap: 4px 18px; align-items: center; max-width: 820px; margin-bottom: 12px; }
.grpo-explorer .rows:empty { display: none; }
.grpo-explorer .rows:has(.one) { grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); max-width: none; }
.grpo-explorer .one { display: grid; grid-template-columns: minmax(2ch, max-content) 84px minmax(0, 1fr); gap: 10px; align-items: center; }
.grpo-explorer .rows label { display: grid; grid-template-columns: max-content minmax(40px, 1fr) 2ch; gap: 8px; align-items: center; }
.grpo-explorer .rows label:has([data-key="ratio"]) { grid-template-columns: max-content minmax(40px, 1fr) 4ch; }
@container (max-width: 560px) { .grpo-explorer .rows { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); } }
.grpo-explorer .rows input { width: 100%; }
.grpo-explorer output { text-align: right; }
.grpo-explorer .rows button { cursor: pointer; padding: 1px 6px; }
.grpo-explorer .legend { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; font-size: 12px; margin-bottom: 8px; }
.grpo-explorer .legend i { height: 12px; border: 1px solid var(--line); box-sizing: border-box; }
.grpo-explorer .ramp { width: 140px; background: linear-gradient(to right, var(--down-most), var(--down), var(--zero), var(--up), var(--up-most)); }
.grpo-explorer .hatched { width: 24px; margin-left: 14px; background: repeating-linear-gradient(135deg, var(--quiet) 0 1.2px, transparent 1.2px 5px); }
.grpo-explorer .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 12px 24px; }
@container (min-width: 960px) { .grpo-explorer .panels { grid-template-columns: repeat(var(--count, 2), minmax(0, 1fr)); } }
.grpo-explorer section { min-width: 0; }
.grpo-explorer h4 { margin: 0 0 2px; font-size: 14px; font-weight: 600; color: var(--text); }
.grpo-explorer h4 .soft { font-weight: 400; font-size: 12px; margin-left: 6px; }
.grpo-explorer .soft { color: var(--quiet); fill: var(--quiet); }
.grpo-explorer svg { display: block; max-width: 100%; }
.grpo-explorer .picture img { display: block; max-width: 100%; height: auto; margin-bottom: 8px; }
.grpo-explorer .side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 8px 24px; }
.grpo-explorer [data-token] { cursor: pointer; }
.grpo-explorer .picked { outline: 2px solid var(--accent); outline-offset: 1px; border-radius: 2px; }
.grpo-explorer .side td { text-align: left; }
.grpo-explorer .grpo-edu { padding: 6px 10px; }
.grpo-explorer .grpo-edu table { color: inherit; }
.grpo-explorer .wide { overflow-x: auto; }
.grpo-explorer .wide svg { max-width: none; }
.grpo-explorer svg text { fill: var(--text); font-size: 12px; }
.grpo-explorer svg text.soft { fill: var(--quiet); font-size: 11px; }
.grpo-explorer .back { fill: transparent; }
.grpo-explorer .on .back { fill: var(--shade); }
.grpo-explorer .edge { fill: none; stroke: var(--line); stroke-width: 1; }
.grpo-explorer .rule { stroke: var(--text); stroke-width: 1; }
.grpo-explorer .hatch { stroke: var(--quiet); stroke-width: 1.4; }
.grpo-explorer .hatch-back { fill: var(--zero); }
.grpo-explorer .grid { stroke: var(--line); stroke-width: 0.5; opacity: 0.6; }
.grpo-explorer .axis { stroke: var(--quiet); stroke-width: 1; }
.grpo-explorer .now { stroke: var(--text); stroke-width: 1; stroke-dasharray: 2 2; }
.grpo-explorer .band { stroke: var(--quiet); stroke-width: 1; stroke-dasharray: 6 4; }
.grpo-explorer .lines polyline, .grpo-explorer .key line { fill: none; stroke-width: 2; }
.grpo-explorer .key { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 20px; margin: 0 0 8px; padding: 0; }
.grpo-explorer .key li { display: flex; gap: 6px; align-items: center; }
.grpo-explorer :is(.why, .note) { margin: 2px 0; font-size: 12px; }
.grpo-explorer .note { font-style: italic; }
.grpo-explorer .message { color: var(--warn); font-weight: 600; margin: 6px 0; }
.grpo-explorer .message:empty { display: none; }
.grpo-explorer details { margin-top: 8px; font-size: 12px; }
.grpo-explorer summary { cursor: pointer; width: max-content; }
.grpo-explorer .table { overflow-x: auto; }
.grpo-explorer table { border-collapse: collapse; margin-top: 6px; font-size: 12px; color: var(--text); }
.grpo-explorer :is(td, thead th) { text-align: right; padding: 2px 10px; }
.grpo-explorer th[scope="row"], .grpo-explorer thead th:first-child { text-align: left; font-weight: 400; }
`;
