// The DAPO explorer: what each of its four changes does, one at a time.

import { AGGREGATIONS, REWARDS, batchOf, clamp, lookup, need, sum } from "./objective.js";
import { bar, chart, escaped, explorer, keyOf, number, select, slider, tableOf } from "./shared.js";

const USUAL = 0.2; // the upper bound that GRPO has
const SHORT = 8; // tokens of each of the seven other completions
const L_MAX = 20480; // L_max of the paper
const PERCENT = Array.from({ length: 99 }, (_, i) => (i + 1) / 100);
const LENGTHS = Array.from({ length: 64 }, (_, i) => SHORT * (i + 1));
const TOTALS = Array.from({ length: 111 }, (_, i) => 200 * i);
const inPercent = (x) => `${number(100 * x)} %`;

// What the clip lets a rising token of old probability p gain before its gradient stops.
const room = (p, eps) => Math.min(1, p * (1 + eps)) - p;
const live = (p, size) => 1 - p ** size - (1 - p) ** size;

// Part of the step's |push| that the first of eight completions has, all advantages equally large.
function shareOf(aggregation, longest) {
  const lengths = [longest, ...Array(7).fill(SHORT)];
  const group = [0, 0, 0, 0, 1, 1, 1, 1];
  const batch = batchOf({ lengths, group, rewards: [1, 0, 1, 0, 1, 0, 1, 0] });
  const W = lookup(AGGREGATIONS, "aggregation", { name: aggregation })(batch, {});
  return (W[0] * longest) / sum(W.map((w, i) => w * lengths[i]));
}
const penalty = (length, cache) =>
  REWARDS.overlong_penalty({ rewards: [0], lengths: [length], limit: L_MAX }, { cache }).rewards[0];

const line = (name, f, grid, now) => ({ name, label: name, values: grid.map(f), at: f(now) });
const panel = (heading, x, now, lines, y) => ({ heading, x, now, lines, y });

function clipHigher({ eps_high, old }) {
  const x = { values: PERCENT, low: 0, high: 1, label: "old probability of the token" };
  const bounds = [USUAL, eps_high].map((eps) => Math.min(1, old * (1 + eps)));
  const stops = (bound) => (bound < 1 ? `at ${number(bound)}` : "nowhere");
  return {
    claim:
      `A rising token of probability ${number(old)} loses its gradient ${stops(bounds[1])} with ` +
      `ε high ${number(eps_high)}, and ${stops(bounds[0])} with ε high ${USUAL}.`,
    why: "The bound is a factor, 1 + ε high: a rare token has little room, a likely one is free.",
    panels: [
      panel("room to rise in one rollout", x, old, [
        line(`GRPO: ε high ${USUAL}`, (p) => room(p, USUAL), PERCENT, old),
        line(`clip-higher: ε high ${number(eps_high)}`, (p) => room(p, eps_high), PERCENT, old),
      ]),
    ],
  };
}

function dynamicSampling({ p, size }) {
  const x = { values: PERCENT, low: 0, high: 1, label: "pass rate p" };
  const alive = line("live groups", (q) => live(q, size), PERCENT, p);
  const cost = line("groups sampled for a live one", (q) => 1 / live(q, size), PERCENT, p);
  return {
    claim:
      `At p = ${number(p)} and G = ${size}, ${inPercent(alive.at)} of the groups are live: ` +
      `${number(cost.at)} groups are sampled for each one that trains.`,
    why: "A group whose rewards are all equal has no advantage. Dynamic sampling replaces it.",
    panels: [
      panel("part of the groups that is live", x, p, [alive], { low: 0, high: 1.02 }),
      panel("groups sampled for each live one", x, p, [cost], {
        low: 0,
        high: clamp(1.1 * Math.max(...cost.values), 2, 20),
      }),
    ],
  };
}

function tokenMean({ longest }) {
  const x = { values: LENGTHS, low: 0, high: 512, label: "tokens of the long completion" };
  const under = (name, aggregation) => line(name, (n) => shareOf(aggregation, n), LENGTHS, longest);
  const lines = [
    under("1/|o|: GRPO", "sequence_mean"),
    under("token mean of the prompt: DAPO, Eq. 8", "prompt_token_mean"),
    under("token mean of the step: as frameworks run it", "step_token_mean"),
  ];
  return {
    claim:
      `One completion of ${longest} tokens among seven of ${SHORT}: its part of the step is ` +
      `${inPercent(lines[0].at)} under 1/|o|, ${inPercent(lines[1].at)} under Eq. 8, ` +
      `${inPercent(lines[2].at)} under the token mean of the step.`,
    why: "Under 1/|o| the completions count alike; under a token mean their tokens do.",
    panels: [
      panel("the long completion's part of the step", x, longest, lines, { low: 0, high: 1 }),
    ],
  };
}

function overlongPenalty({ cache, length }) {
  const x = { values: TOTALS, low: 0, high: 22000, label: "tokens of the completion" };
  const now = line("added to the reward", (n) => penalty(n, cache), TOTALS, length);
  return {
    claim:
      `The penalty starts at ${L_MAX - cache} tokens and is −1 from ${L_MAX}: ` +
      `a completion of ${length} tokens gets ${number(now.at)}.`,
    why: `The slope is ${cache} tokens wide. Without it the penalty would be a cliff.`,
    panels: [
      panel("added to the reward", { ...x, bands: [L_MAX] }, length, [now], {
        low: -1.1,
        high: 0.1,
      }),
    ],
  };
}

const CHANGES = {
  "clip-higher": { settings: ["eps_high", "old"], of: clipHigher },
  "dynamic sampling": { settings: ["p", "size"], of: dynamicSampling },
  "token mean": { settings: ["longest"], of: tokenMean },
  "overlong penalty": { settings: ["cache", "length"], of: overlongPenalty },
};

/* {claim, why, panels}: a panel is {heading, x, now, lines, y}, a line {name, values, at} on the
   values of x and at the marker. */
export function answer(state) {
  for (const name of ["p", "old"])
    need(state[name] > 0 && state[name] < 1, name, state[name], "a number between 0 and 1");
  return lookup(CHANGES, "change", { name: state.change }).of(state);
}

// ---- the picture ----

function draw(root, s, { claim, why, panels }, id) {
  root.querySelectorAll("[data-of]").forEach((part) => {
    part.style.display = part.dataset.of === s.change ? "contents" : "none";
  });
  const lines = panels.flatMap((one) => one.lines);
  const sections = panels.map(
    ({ heading }) => `<section><h4>${escaped(heading)}</h4><div class="plot"></div></section>`,
  );
  const key = keyOf(lines.map((one) => ({ ...one, note: number(one.at) })));
  root.querySelector(".picture").innerHTML = `<p class="claim"><b>${claim}</b><br>${why}
    <span class="soft">Exact.</span></p>${lines.length > panels.length ? key : ""}
    <div class="panels">${sections.join("")}</div>`;
  root.querySelectorAll(".plot").forEach((plot, k) => {
    const { heading, x, now, lines: some, y } = panels[k];
    const top = Math.max(...some.flatMap((one) => one.values));
    plot.innerHTML = chart({
      height: 215,
      width: Math.min(620, Math.max(280, Math.floor(plot.clientWidth))),
      x,
      y: y ?? { low: 0, high: 1.1 * top },
      lines: some,
      now,
      title: `${heading} by ${x.label}`,
      id: `${id}-${k}`,
    });
  });
  const { x, now } = panels[0];
  const some = x.values.filter((_, i) => i % Math.ceil(x.values.length / 9) === 0);
  const value = (one, at) => number(one.values[x.values.indexOf(at)]);
  root.querySelector(".table").innerHTML = tableOf(
    ["line", `at ${number(now)} (chosen)`, ...some.map((at) => `at ${number(at)}`)],
    lines.map((one) => [one.name, number(one.at), ...some.map((at) => value(one, at))]),
  );
}

// ---- the controls ----

const SLIDERS = {
  eps_high: ["ε high", 'min="0.1" max="0.5" step="0.01"'],
  old: ["old probability", 'min="0.01" max="0.99" step="0.01"'],
  p: ["pass rate p", 'min="0.01" max="0.99" step="0.01"'],
  size: ["group size G", 'min="2" max="64" step="1"'],
  longest: ["tokens of the long completion", `min="${SHORT}" max="512" step="8"`],
  cache: ["penalised tokens before the limit", 'min="512" max="8192" step="512"'],
  length: ["tokens of the completion", 'min="0" max="22000" step="200"'],
};
const of = ([change, { settings }]) =>
  `<div data-of="${change}">${settings.map((key) => slider(key, ...SLIDERS[key])).join("")}</div>`;
const names = Object.keys(CHANGES).map((name) => [name, name]);
const controls = () => bar(select("change", "change", names), ...Object.entries(CHANGES).map(of));

const shown = (key, s) => ({ value: s[key] });
const changes = {
  change: (input) => ({ change: input.value }),
  ...Object.fromEntries(
    Object.keys(SLIDERS).map((key) => [key, (input) => ({ [key]: Number(input.value) })]),
  ),
};
const keys = ["change", ...Object.keys(SLIDERS)];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
