// The toy player: recorded runs of the stopping toy, played step by step.

import { need } from "./objective.js";
import {
  attributes,
  bar,
  chart,
  escaped,
  explorer,
  keyOf,
  number,
  select,
  slider,
  tableOf,
} from "./shared.js";

const REST = 150; // ms between two steps
const BOX = [-5, 0.5]; // stop logits that the phase portrait shows

/* The chosen run up to the step: {k, run, steps, now: {column: value}}. */
export function answer({ runs, recipe, step }) {
  const run = runs[recipe];
  need(run, "recipe", recipe, `one of ${Object.keys(runs).join(", ")}`);
  const k = run.steps.filter((s) => s <= step).length - 1;
  const columns = ["stop_right", "stop_wrong", "length_right", "length_wrong", "pass_rate"];
  const now = Object.fromEntries(columns.map((name) => [name, run[name][k]]));
  return { k, run, steps: run.steps.slice(0, k + 1), now };
}

function portrait(size, { k, run, now }, id) {
  const [left, bottom, top] = [52, 40, 10];
  const w = size - left - 12;
  const share = (v) => (v - BOX[0]) / (BOX[1] - BOX[0]);
  const X = (v) => left + share(v) * w;
  const Y = (v) => top + (1 - share(v)) * w;
  const longest = Math.max(...run.arrows.map(([, , da, db]) => Math.hypot(da, db))) || 1;
  const arrows = run.arrows.map(([a, b, da, db]) => {
    const [x, y] = [X(a) + (24 * da) / longest, Y(b) - (24 * db) / longest];
    return `<line x1="${X(a)}" y1="${Y(b)}" x2="${x}" y2="${y}" marker-end="url(#${id}-tip)"/>`;
  });
  const points = (path) => path.map(([a, b]) => `${X(a).toFixed(1)},${Y(b).toFixed(1)}`).join(" ");
  const path = (values, kind) => `<polyline class="${kind}" points="${points(values)}"/>`;
  const mean = run.stop_right.map((a, i) => [a, run.stop_wrong[i]]).slice(0, k + 1);
  const tick = (v) => `<text class="soft" x="${X(v)}" y="${top + w + 15}" text-anchor="middle">
    ${number(v)}</text><text class="soft" x="${left - 6}" y="${Y(v) + 4}" text-anchor="end">
    ${number(v)}</text>`;
  return `<svg role="img" width="${size}" height="${top + w + bottom}">
    <title>stop logits: right ${number(now.stop_right)}, wrong ${number(now.stop_wrong)}</title>
    <marker id="${id}-tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5"
    orient="auto"><path d="M0 0 6 3 0 6z" fill="var(--quiet)"/></marker>
    <clipPath id="${id}-box"><rect x="${left}" y="${top}" width="${w}" height="${w}"/></clipPath>
    <rect class="edge" x="${left}" y="${top}" width="${w}" height="${w}"/>
    <g class="portrait" clip-path="url(#${id}-box)">
    <line class="band" x1="${X(BOX[0])}" y1="${Y(BOX[0])}" x2="${X(BOX[1])}" y2="${Y(BOX[1])}"/>
    <g class="arrows">${arrows.join("")}</g>
    ${run.paths.map((one) => path(one.slice(0, k + 1), "seed")).join("")}${path(mean, "mean")}
    <circle cx="${X(now.stop_right)}" cy="${Y(now.stop_wrong)}" r="4" fill="var(--c1)"/></g>
    ${[-5, -4, -3, -2, -1, 0].map(tick).join("")}
    <text class="soft" x="${left + w / 2}" y="${top + w + 32}" text-anchor="middle">stop logit of a
    right answer</text></svg>`;
}

function draw(root, s, result, id) {
  const { run, steps, now } = result;
  const picture = root.querySelector(".picture");
  const lines = ["right", "wrong"].map((side) => ({
    name: side,
    label: side,
    values: run[`length_${side}`].slice(0, steps.length),
    at: now[`length_${side}`],
    note: `${now[`length_${side}`].toFixed(1)} tokens`,
  }));
  picture.innerHTML = `<p class="note">${escaped(s.recipe)}, step ${steps.at(-1)}: pass rate
    ${now.pass_rate.toFixed(2)}, right ${lines[0].note}, wrong ${lines[1].note}</p>
    ${keyOf(lines)}<div class="panels">
    <section><h4>stop logits<span class="soft">a wrong answer's, upwards, against a right one's
    </span></h4><div class="plot"></div></section>
    <section><h4>expected tokens</h4><div class="plot"></div></section></div>
    <p class="soft">paths simulated, ${run.paths.length} seeds, mean bold; arrows: expected first
    update, exact; on the dashed line both stop alike</p>`;
  const [left, right] = picture.querySelectorAll(".plot");
  const size = Math.min(380, Math.max(240, Math.floor(left.clientWidth)));
  left.innerHTML = portrait(size, result, id);
  right.innerHTML = chart({
    width: Math.min(560, Math.max(240, Math.floor(right.clientWidth))),
    height: 250,
    x: { values: steps, low: 0, high: run.steps.at(-1), label: "step" },
    y: { low: 0, high: 34 },
    lines,
    now: steps.at(-1),
    title: "expected tokens by step",
    id: `${id}-length`,
  });
  root.querySelector(".table").innerHTML = tableOf(
    ["step", "pass rate", "tokens, right", "tokens, wrong"],
    steps.map((step, i) => [
      step,
      ...["pass_rate", "length_right", "length_wrong"].map((name) => number(run[name][i])),
    ]),
  );
  play(root, s, run);
}

// While it plays, a step follows the last one after a rest.
function play(root, s, run) {
  clearTimeout(root.next);
  if (!s.playing) return;
  root.next = setTimeout(() => {
    if (!root.isConnected) return;
    const control = root.querySelector('[data-key="step"]');
    if (s.step >= run.steps.at(-1)) return root.querySelector('[data-key="playing"]').click();
    control.stepUp();
    control.dispatchEvent(new Event("input", { bubbles: true }));
  }, REST);
}

// ---- the controls ----

function controls({ specs, runs }) {
  const last = Math.max(...Object.values(runs).map((run) => run.steps.at(-1)));
  return bar(
    select(
      "recipe",
      "recipe",
      Object.entries(specs).map(([name, { label }]) => [name, label]),
    ),
    slider("step", "step", `min="0" max="${last}" step="2"`),
    `<button type="button" ${attributes("playing", "play")}></button>`,
  );
}

function shown(key, s) {
  if (key !== "playing") return { value: s[key] };
  return s.playing
    ? { value: "❚❚ pause", label: "pause the training" }
    : { value: "▶ play", label: "play the training" };
}

const changes = {
  recipe: (input) => ({ recipe: input.value }),
  step: (input) => ({ step: Number(input.value) }),
  playing: (_, s) => ({ playing: !s.playing }),
};

const keys = ["specs", "runs", "recipe", "step", "playing"];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
