// Real text with the push of each token, for one step or for any step of a run. The pushes come as
// factors from the library; here they are multiplied, coloured and explained.

import { clamp, need, sum } from "./objective.js";
import {
  advance,
  bar,
  chart,
  escaped,
  explorer,
  more,
  number,
  playButton,
  playShown,
  presetChoice,
  presetState,
  select,
  signed,
  slider,
  tableOf,
  tick,
} from "./shared.js";

const COLUMNS = {
  advantage: "advantage",
  W: "· W",
  ratio: "· ratio",
  gate: "· gate",
  correction: "· correction",
  kl: "+ KL",
  push: "= push",
  share: "share",
};
const inPercent = (x) => `${signed(100 * x)} %`;
const FORMS = { advantage: signed, push: signed, share: inPercent };
const STRONGEST = 0.03; // this part of the tokens shares the last colour
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// ---- the numbers ----

const of = (column, i, k) => (Array.isArray(column[i]) ? column[i][k] : column[i]);
const isTrained = (step, i, t) => step.trained[i] === true || step.trained[i][t];
// The place of a token among the trained ones of its completion.
const placeOf = (step, i, t) =>
  step.trained[i] === true ? t : step.trained[i].slice(0, t).filter(Boolean).length;
const trainedIn = (step, i) => placeOf(step, i, step.tokens[i].length);

function factorsOf({ advantage, W, ratio, gate, correction, kl }, i, k) {
  const all = { advantage, W, ratio, gate, correction, kl };
  const present = Object.entries(all).filter(([, column]) => column);
  const f = Object.fromEntries(present.map(([name, column]) => [name, of(column, i, k)]));
  return { ...f, push: f.advantage * f.W * f.ratio * f.gate * (f.correction ?? 1) + f.kl };
}

const made = new WeakMap(); // factors of a recipe -> the pushes of its trained tokens
function pushesOf(step, recipe) {
  if (!made.has(recipe)) {
    const row = (_, i) =>
      Array.from({ length: trainedIn(step, i) }, (_, k) => factorsOf(recipe, i, k).push);
    made.set(recipe, step.tokens.map(row));
  }
  return made.get(recipe);
}

function largestOf(values) {
  const sizes = values
    .map(Math.abs)
    .filter((x) => x > 0)
    .sort((a, b) => a - b);
  return sizes[Math.floor((1 - STRONGEST) * (sizes.length - 1))] ?? 1;
}

/* {step, i, t, rows, panels, largest}: the step and the token that are chosen, the completions that
   are shown, and of each recipe {name, recipe, pushes [i][k], unit, chosen}: drawn is
   push times `unit`; `chosen` has the factors of the token, null where it is not trained. */
export function answer(s) {
  const step = s.steps[s.index];
  need(step !== undefined, "index", s.index, `at most ${s.steps.length - 1}`);
  const i = clamp(s.completion, 0, step.tokens.length - 1);
  const t = clamp(s.token, 0, Math.max(0, step.tokens[i].length - 1));
  const all = step.tokens.map((_, j) => j);
  const panels = [...new Set([s.left, s.right])].map((name) => {
    const recipe = step.recipes[name];
    const unit = s.relative ? 1 / (recipe.total || 1) : 1;
    const chosen = isTrained(step, i, t) ? factorsOf(recipe, i, placeOf(step, i, t)) : null;
    return { name, recipe, unit, chosen, pushes: pushesOf(step, recipe) };
  });
  const drawn = panels.flatMap(({ pushes, unit }) => pushes.flat().map((x) => x * unit));
  const rows = s.whole ? all.filter((j) => step.group[j] === step.group[i]) : [i];
  return { step, i, t, rows, panels, largest: largestOf(drawn) };
}

// ---- the picture ----

const shownIn = (s) => (s.relative ? (x) => `${number(100 * x)} %` : number);
const tailOf = (prompt) => prompt.trim().replace(/\s+/g, " ").slice(-70);

function spanOf(panel, { step, i, t, largest }, j, place) {
  const text = escaped(step.tokens[j][place]).replaceAll("&#10;", "↵&#10;");
  const picked = j === i && place === t ? "picked" : "";
  const at = `data-token="${j},${place}"`;
  if (!isTrained(step, j, place)) return `<span ${at} class="out ${picked}">${text}</span>`;
  const k = placeOf(step, j, place);
  const push = panel.pushes[j][k];
  const { advantage, gate } = factorsOf(panel.recipe, j, k);
  const side = push > 0 ? "up" : "down";
  const kinds = [picked, push === 0 ? "" : side, gate === 0 && advantage !== 0 ? "clipped" : ""];
  const part = Math.min(1, Math.abs(push * panel.unit) / largest);
  const fill = `color-mix(in srgb, var(--${side}) ${(75 * part).toFixed(0)}%, transparent)`;
  const style = push === 0 ? "" : `style="background-color: ${fill}"`;
  return `<span ${at} class="${kinds.join(" ").trim()}" ${style}>${text}</span>`;
}

function completionOf(panel, now, j) {
  const { step } = now;
  const pushes = panel.pushes[j];
  const whole = sum(pushes);
  const reward = step.rewards[j] === null ? "not scored" : number(step.rewards[j]);
  const each = pushes.length ? whole / pushes.length : 0;
  const head =
    `completion ${j} · reward ${reward} · ${pushes.length} tokens · ` +
    `push per token ${signed(each)} · ${inPercent(whole / (panel.recipe.total || 1))} of the step`;
  const spans = step.tokens[j].map((_, place) => spanOf(panel, now, j, place));
  return `<p class="head soft">${head}</p>
    <div class="text" data-shown="${j}">${spans.join("")}</div>`;
}

// The factors of the chosen token as a table; on a narrow screen its columns are the recipes.
function ledgerOf(s, { step, i, t, panels }, narrow) {
  const text = escaped(JSON.stringify(step.tokens[i][t] ?? ""));
  const title = `<h4>token ${t} of completion ${i}: <code>${text}</code></h4>`;
  if (!isTrained(step, i, t)) return `${title}<p>It is not trained, so it has no push.</p>`;
  const found = panels.map(({ recipe, chosen }) => ({
    ...chosen,
    share: chosen.push / (recipe.total || 1),
  }));
  const names = Object.keys(COLUMNS).filter((name) => found.some((f) => f[name] !== undefined));
  const head = (name) => `<th scope="${narrow ? "row" : "col"}">${COLUMNS[name]}</th>`;
  const label = ({ name }) =>
    `<th scope="${narrow ? "col" : "row"}">${escaped(s.specs[name].label)}</th>`;
  const cell = (p, name) => {
    const x = found[p][name];
    const at = `data-of="${escaped(panels[p].name)}" data-factor="${name}" data-value="${x}"`;
    return `<td ${at}>${x === undefined ? "" : (FORMS[name] ?? number)(x)}</td>`;
  };
  const rows = narrow
    ? names.map((name) => [head(name), ...panels.map((_, p) => cell(p, name))])
    : panels.map((panel, p) => [label(panel), ...names.map((name) => cell(p, name))]);
  const first = narrow ? panels.map(label) : names.map(head);
  const line = (cells) => `<tr>${cells.join("")}</tr>`;
  return `${title}<table><thead>${line(["<td></td>", ...first])}</thead>
    <tbody>${rows.map(line).join("")}</tbody></table>`;
}

function curveOf(s, { step }, width, id) {
  const points = s.log.step.map((x, k) => [x, s.log[s.metric][k]]).filter(([, y]) => y !== null);
  if (points.length === 0) return `<p>${escaped(s.metric)} has no number to draw.</p>`;
  const values = points.map(([, y]) => y);
  const near = points.reduce((a, b) =>
    Math.abs(b[0] - step.step) < Math.abs(a[0] - step.step) ? b : a,
  );
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = 0.08 * (high - low || Math.abs(high) || 1);
  const xs = points.map(([x]) => x);
  return chart({
    width: Math.min(760, width),
    height: 160,
    x: { values: xs, low: xs[0], high: Math.max(xs.at(-1), xs[0] + 1), label: "step" },
    y: { low: low - room, high: high + room },
    lines: [{ name: s.metric, values, at: near[1] }],
    now: step.step,
    title: `${s.metric} of the run by step`,
    id,
  });
}

const SKELETON = `<div class="curve"></div><div class="legend"></div>
  <div class="ledger" aria-live="polite"></div><p class="prompt soft"></p>
  <div class="texts side" tabindex="0" role="group" data-lm-suppress-shortcuts="true"
  aria-label="tokens of the completions: the arrow keys choose a token"></div>`;

function draw(root, s, now, id) {
  const { step, i, panels, rows, largest } = now;
  const picture = root.querySelector(".picture");
  if (!picture.querySelector(".texts")) picture.innerHTML = SKELETON;
  const put = (name, html) => {
    picture.querySelector(name).innerHTML = html;
  };
  const end = shownIn(s)(largest);
  const unit = s.relative ? "of each recipe's step" : "push";
  put(
    ".legend",
    `<span>−${end}</span><i class="ramp"></i><span>+${end} or more, ${unit}</span>
    <i class="hatched"></i><span>clipped</span> <span class="out">not trained</span>`,
  );
  if (s.metric) put(".curve", curveOf(s, now, Math.max(280, picture.clientWidth), id));
  put(".ledger", ledgerOf(s, now, picture.clientWidth < 560));
  put(".prompt", step.prompts ? `prompt: … ${escaped(tailOf(step.prompts[i]))}` : "");
  const columns = panels.map((panel) => {
    const texts = rows.map((j) => completionOf(panel, now, j)).join("");
    return `<section data-recipe="${escaped(panel.name)}">
      <h4>${escaped(s.specs[panel.name].label)}</h4>${texts}</section>`;
  });
  put(".texts", columns.join(""));
  const formulas = Object.keys(s.specs[panels[0].name].formula);
  root.querySelector(".table").innerHTML = tableOf(
    ["recipe", ...formulas],
    panels.map(({ name }) => {
      const { label, formula } = s.specs[name];
      return [label, ...formulas.map((factor) => escaped(formula[factor]))];
    }),
  );
  root.querySelector("summary").textContent = "the formulas of the factors";
  advance(root, s.playing, "index");
}

// ---- the controls ----

const PLAY = "the run";
const controls = (s) => {
  const names = Object.entries(s.specs).map(([name, { label }]) => [name, label]);
  const curves = Object.keys(s.log).filter((name) => name !== "step");
  const run = () =>
    bar(
      select(
        "metric",
        "curve",
        curves.map((name) => [name, name]),
      ),
      slider("index", "recorded step", `min="0" max="${s.steps.length - 1}" step="1"`),
      playButton(PLAY),
    );
  return (
    (s.metric ? run() : bar(presetChoice(s))) +
    bar(
      select("left", "recipe at the left", names),
      select("right", "recipe at the right", names),
      slider("completion", "completion", 'min="0" step="1"'),
      slider("token", "token", 'min="0" step="1"'),
    ) +
    more(
      tick("relative", "in percent of each recipe's step"),
      tick("whole", "all answers to the prompt"),
    )
  );
};

function shown(key, s) {
  const { tokens, step } = s.steps[s.index] ?? s.steps[0];
  if (key === "playing") return playShown(s.playing, PLAY);
  if (key === "index") return { value: s.index, text: step };
  if (key === "completion") return { value: s.completion, max: tokens.length - 1 };
  if (key === "token") {
    const last = tokens[Math.min(s.completion, tokens.length - 1)].length - 1;
    return { value: Math.min(s.token, last), max: last };
  }
  return { value: s[key] };
}

const word = (key) => [key, (input) => ({ [key]: input.value })];
const whole = (key) => [key, (input) => ({ [key]: Number(input.value) })];
const truth = (key) => [key, (input) => ({ [key]: input.checked })];
const changes = {
  ...Object.fromEntries(["left", "right", "metric"].map(word)),
  ...Object.fromEntries(["index", "completion", "token"].map(whole)),
  ...Object.fromEntries(["relative", "whole"].map(truth)),
  playing: (_, s) => ({ playing: !s.playing }),
  preset: presetState,
};
const keys = ["specs", "steps", "log", "presets", "compact", ...Object.keys(changes)];
const render = explorer({ keys, controls, shown, changes, answer, draw });

// A token is chosen by the mouse, or by the arrow keys in the texts.
export default {
  render({ model, el }) {
    const done = render({ model, el });
    const choose = (completion, token) => {
      model.set("completion", completion);
      model.set("token", token);
      model.save_changes();
    };
    el.addEventListener("click", (event) => {
      const place = event.target.closest?.("[data-token]");
      if (place) choose(...place.dataset.token.split(",").map(Number));
    });
    el.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move || !event.target.classList.contains("texts")) return;
      event.preventDefault();
      const { tokens } = model.get("steps")[model.get("index")];
      const i = clamp(model.get("completion") + move[0], 0, tokens.length - 1);
      choose(i, clamp(model.get("token") + move[1], 0, tokens[i].length - 1));
    });
    return done;
  },
};
