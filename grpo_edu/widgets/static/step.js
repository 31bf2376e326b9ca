// Take the step: the probabilities of a small vocabulary before and after one update, per recipe.

import { gripAttributes, gripsOf, keepingFocus } from "./grips.js";
import { clamp, need, pushOf, sum } from "./objective.js";
import {
  attributes,
  bar,
  chooser,
  chosen,
  escaped,
  explorer,
  mark,
  number,
  percent,
  replaced,
  select,
  signed,
  slider,
  tableOf,
} from "./shared.js";

const MANY = 4;
const LEAST = 0.01;

function check(s) {
  need(s.recipes.length > 0, "the choice of recipes", "empty", "at least one");
  need(s.token < s.policy.length, "token", s.token, `0 to ${s.policy.length - 1}`);
  const p = s.policy[s.token];
  const least = `at least ${number(p)}, π of the token, or π_old would exceed 1`;
  need(p / s.ratio <= 1 + 1e-12, "the ratio", number(s.ratio), least);
}

/* One answer per recipe: {name, advantage, W, ratio, gate, push}, each of the token, and `after`,
   the probabilities after the step, or {name, error}. Throws on a state that is wrong. */
export function answer(state) {
  check(state);
  return state.recipes.map((name) => {
    try {
      return { name, ...stepOf(state.specs[name], state) };
    } catch (error) {
      return { name, error: error.message };
    }
  });
}

// z_v + η · push · (1[v is the token] - π_v), as probabilities
function stepped({ policy, token, learning_rate }, push) {
  const own = (v) => (v === token ? 1 : 0);
  const raised = policy.map((p, v) => p * Math.exp(learning_rate * push * (own(v) - p)));
  return raised.map((x) => x / sum(raised));
}

function stepOf(spec, s) {
  const ratio = (i, t) => (i === 0 && t === 0 ? s.ratio : 1);
  const result = pushOf(spec, {
    rewards: s.rewards,
    lengths: s.rewards.map(() => s.length),
    group: s.rewards.map(() => 0),
    logRatio: s.rewards.map((_, i) =>
      Array.from({ length: s.length }, (_, t) => Math.log(ratio(i, t))),
    ),
    limit: s.limit,
    micro: s.rewards.map(() => 0),
  });
  const first = Object.fromEntries(
    ["advantage", "W", "ratio", "gate", "push"].map((name) => [name, result[name][0][0]]),
  );
  return { ...first, after: stepped(s, first.push) };
}

// ---- the picture ----

const HEIGHT = 100; // of a probability of 1
const TOP = 18;
const places = (s, width) => {
  const column = Math.min(76, (width - 8) / s.policy.length);
  return { column, wide: Math.min(22, column * 0.3) };
};
const rect = (name, x, p, wide) =>
  `<rect class="${name}" x="${x.toFixed(1)}" y="${(TOP + HEIGHT * (1 - p)).toFixed(2)}"
  width="${wide.toFixed(1)}" height="${(HEIGHT * p).toFixed(2)}"/>`;
const textAt = (x, y, text, more = "") =>
  `<text ${more} x="${x.toFixed(1)}" y="${y}" text-anchor="middle">${text}</text>`;
const shares = (p) => percent(p).slice(1); // a probability has no sign

function change(before, after) {
  if (Math.abs(after - before) < 1e-12) return "same";
  return after > before ? "up" : "down";
}

function columnOf(r, s, v, { column, wide, reached }) {
  const middle = 4 + column * (v + 0.5);
  const p = s.policy[v];
  const q = r.after[v];
  const name = escaped(s.vocabulary[v] ?? v + 1);
  const held = gripAttributes(`before ${v}`, {
    label: `probability of token ${s.vocabulary[v] ?? v + 1} before the step`,
    text: `${shares(p)}, after the step of ${s.specs[r.name].label} ${shares(q)}`,
    now: p,
    low: LEAST,
    high: 1,
    reached,
  });
  const base = TOP + HEIGHT;
  const sampled = v === s.token;
  return `<g data-vocabulary="${v}" data-after="${q}">
    <g ${held}><rect class="back" x="${middle - column / 2}" y="0" width="${column}"
    height="${base}"/>${rect("before", middle - wide - 1, p, wide)}</g>
    ${rect(`after ${change(p, q)}`, middle + 1, q, wide)}
    ${textAt(middle, base + 16, name, sampled ? 'class="sampled"' : "")}
    ${textAt(middle, base + 31, shares(p), 'class="soft"')}
    ${textAt(middle, base + 46, `→ ${shares(q)}`)}</g>`;
}

function panel(r, s, width, reached) {
  const size = { ...places(s, width), reached };
  const columns = s.policy.map((_, v) => columnOf(r, s, v, size));
  const all = s.policy.map(
    (p, v) => `${escaped(s.vocabulary[v] ?? v + 1)} ${shares(p)} to ${shares(r.after[v])}`,
  );
  const end = 4 + size.column * s.policy.length;
  return `<svg role="${reached ? "group" : "img"}" width="${width}" height="${TOP + HEIGHT + 52}">
    <title>${escaped(s.specs[r.name].label)}, before and after: ${all.join("; ")}</title>
    <path class="axis" d="M4 ${TOP + HEIGHT}H${end}"/>${columns.join("")}</svg>`;
}

function why(r) {
  const product =
    `A ${signed(r.advantage)} · W ${number(r.W)} · ratio ${number(r.ratio)} · ` +
    `gate ${number(r.gate)}`;
  const still = r.push === 0 ? " The push is 0, so nothing moves." : "";
  return `<p class="why" data-push="${r.push}">push = ${product} =
    <b>${signed(r.push)}</b>.${still}</p>`;
}

function intro(s) {
  const name = escaped(s.vocabulary[s.token] ?? s.token + 1);
  const p = s.policy[s.token];
  return `<p class="moved">Answer 1 (${mark(s.rewards[0])}) begins with the token <b>${name}</b>:
    π_old ${number(p / s.ratio)} → π ${number(p)}, ratio ${number(s.ratio)}. One step of
    gradient descent on the logits, learning rate ${number(s.learning_rate)}. Every answer
    has ${s.length} token${s.length > 1 ? "s" : ""}; C = ${s.limit}.
    <span class="soft">Drag a grey bar to change the policy before the step.</span></p>
    <div class="legend"><i class="key before"></i><span>before</span><i class="key up"></i>
    <span>after: more probable</span><i class="key down"></i><span>after: less probable</span>
    <span class="soft">z ← z + η · push · (1[this token] − π); exact</span></div>`;
}

function draw(root, s, results) {
  const count = results.length > 3 ? 2 : results.length;
  const sections = results.map((r) => {
    const { label, formula } = s.specs[r.name];
    return `<section data-recipe="${escaped(r.name)}"><h4>${escaped(label)}
      <span class="soft">W = ${escaped(formula)}</span></h4><div class="plot"></div></section>`;
  });
  const first = results.find((r) => !r.error);
  keepingFocus(root, () => {
    root.querySelector(".picture").innerHTML =
      `${intro(s)}<div class="panels" style="--count: ${count}">${sections.join("")}</div>`;
    const plots = [...root.querySelectorAll(".plot")];
    const widths = plots.map((plot) => Math.max(280, Math.floor(plot.clientWidth)));
    plots.forEach((plot, k) => {
      const r = results[k];
      plot.innerHTML = r.error
        ? `<p class="message" role="alert">${escaped(r.error)}</p>`
        : `${panel(r, s, widths[k], r === first)}${why(r)}`;
    });
  });
  root.querySelector(".table").innerHTML = table(results, s);
}

function table(results, s) {
  const good = results.filter((r) => !r.error);
  const head = ["recipe", "A", "W", "ratio", "gate", "push", ...s.vocabulary.map(escaped)];
  const line = (r) => [
    s.specs[r.name].label,
    signed(r.advantage),
    number(r.W),
    number(r.ratio),
    number(r.gate),
    signed(r.push),
    ...r.after.map((q, v) => `${shares(s.policy[v])} → ${shares(q)}`),
  ];
  return tableOf(head, good.map(line));
}

// ---- the controls ----

const controls = ({ specs, vocabulary }) =>
  bar(chooser("recipes", "recipe", specs, MANY)) +
  bar(
    select(
      "token",
      "sampled token",
      vocabulary.map((name, v) => [String(v), name]),
    ),
    slider("ratio", "ratio π/π_old", 'min="0.1" max="6" step="0.05"'),
    slider("length", "length of the answers", 'min="1" max="16" step="1"'),
    slider("learning_rate", "learning rate η", 'min="0" max="100" step="1"'),
  );

const row = (i) =>
  `<div class="one"><span>answer ${i + 1}</span>` +
  `<button type="button" ${attributes("rewards", "", i)}></button></div>`;

function shown(key, s, i) {
  if (key === "rewards") {
    const value = mark(s.rewards[i]);
    return { value, label: `reward of answer ${Number(i) + 1}: ${value}` };
  }
  if (key === "ratio") return { value: s.ratio, text: s.ratio.toFixed(2) };
  if (key === "recipes") return { value: s.recipes[i] ?? "none" };
  return { value: key === "token" ? String(s.token) : s[key] };
}

const numberIn = (key) => (input) => ({ [key]: Number(input.value) });
const changes = {
  recipes: chosen("recipes", MANY),
  token: numberIn("token"),
  ratio: numberIn("ratio"),
  length: numberIn("length"),
  learning_rate: numberIn("learning_rate"),
  rewards: (_, s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) }),
};

// ---- what is dragged ----

// The policy where token v has probability p and the others share the rest as they did.
function withProbability({ policy }, v, p) {
  const most = 1 - LEAST * (policy.length - 1);
  const own = Number(clamp(p, LEAST, most).toFixed(3));
  const rest = 1 - policy[v];
  return { policy: policy.map((x, u) => (u === v ? own : (x * (1 - own)) / rest)) };
}

const indexOf = (held) => Number(held.dataset.grip.split(" ")[1]);
const taken = (held, _event, s) => {
  const v = indexOf(held);
  return { changed: {}, move: (_, dy) => withProbability(s, v, s.policy[v] - dy / HEIGHT) };
};
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 };
function pressed(held, key, s) {
  const v = indexOf(held);
  return key in STEPS ? withProbability(s, v, s.policy[v] + STEPS[key] / 100) : null;
}

const keys = [
  "specs",
  "recipes",
  "policy",
  "vocabulary",
  "token",
  "ratio",
  "rewards",
  "length",
  "limit",
  "learning_rate",
];
export default {
  render: explorer({
    keys,
    controls,
    rows: (s) => s.rewards.map((_, i) => row(i)),
    shown,
    changes,
    answer,
    draw,
    grips: gripsOf({ taken, pressed }),
  }),
};
