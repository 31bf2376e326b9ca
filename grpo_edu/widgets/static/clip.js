// The clip explorer: objective and gradient of one token against its importance ratio.

import { OBJECTIVES, SURROGATES, lookup, need } from "./objective.js";
import {
  FRAME,
  asNumber,
  bar,
  chart,
  chooser,
  chosen,
  explorer,
  field,
  keyOf,
  more,
  number,
  presetChoice,
  presetState,
  select,
  signed,
  slider,
  tableOf,
} from "./shared.js";

const MANY = 4;
const GRID = Array.from({ length: 396 }, (_, i) => (i + 5) / 100);

/* {ratios, lines}: one line per surrogate, {name, objective, gradient, value, push, ratio, gate},
   on the grid and at the ratio. */
export function answer(state) {
  const { surrogates, specs, advantage, ratio } = state;
  need(ratio > 0 && Number.isFinite(ratio), "ratio", ratio, "a positive number");
  need(advantage === 1 || advantage === -1, "A", advantage, "1 or -1");
  need(surrogates.length > 0, "the choice of surrogates", "empty", "at least one");
  need(state.cap >= 1, "the cap of the dual clip", state.cap, "1 or more");
  const lines = surrogates.map((name) => {
    const settings = Object.fromEntries(
      Object.entries(specs[name].surrogate).map(([key, own]) => [key, state[key] ?? own]),
    );
    const surrogate = lookup(SURROGATES, "surrogate", settings);
    const factors = (r) => surrogate([Math.log(r)], [advantage], settings);
    const objective = (r) => lookup(OBJECTIVES, "surrogate", settings)(r, advantage, settings);
    const push = (r) => advantage * factors(r).ratio[0] * factors(r).gate[0];
    return {
      name,
      objective: GRID.map(objective),
      gradient: GRID.map(push),
      value: objective(ratio),
      push: push(ratio),
      gate: factors(ratio).gate[0],
    };
  });
  return { ratios: GRID, lines };
}

// ---- the picture ----

const reach = (old, high) =>
  old * (1 + high) >= 1
    ? `one at ${old} never stops`
    : `a token at π_old ${old} stops rising at ${number(old * (1 + high))}`;

function draw(root, s, { lines }, id) {
  const labelled = lines.map((l) => ({ ...l, label: s.specs[l.name].label }));
  const note = (l) =>
    `push ${signed(l.push)}${l.push === 0 ? ": no gradient" : ""}, gate ${number(l.gate)}`;
  const band = `${number(1 - s.eps_low)} to ${number(1 + s.eps_high)}`;
  root.querySelector(".picture").innerHTML = `
    ${keyOf(labelled.map((l) => ({ ...l, note: note(l) })))}
    <p class="note aside">Band ${band}. With A &gt; 0 ${reach(0.01, s.eps_high)},
    ${reach(0.9, s.eps_high)}.</p><div class="panels">
    <section data-panel="objective"><h4>objective<span class="soft">where the ratio is detached:
    the function whose slope is the gradient</span></h4><div class="plot"></div></section>
    <section data-panel="gradient"><h4>gradient
    <span class="soft">∂/∂log π = A · ratio · gate</span></h4>
    <div class="plot"></div></section></div>
    <p class="soft">exact, one token, A = ${signed(s.advantage)}</p>`;
  const x = {
    values: GRID,
    low: 0,
    high: 4,
    label: "importance ratio ρ",
    bands: [1 - s.eps_low, 1 + s.eps_high],
  };
  const y = s.advantage > 0 ? { low: -0.5, high: 3.2 } : { low: -4.2, high: 0.5 };
  const plots = [...root.querySelectorAll(".plot")];
  const widths = plots.map((plot) => Math.max(240, Math.floor(plot.clientWidth)));
  [
    ["objective", "value", "objective by ratio"],
    ["gradient", "push", "gradient by ratio"],
  ].forEach(([values, at, title], k) => {
    const some = labelled.map((l) => ({ name: l.label, values: l[values], at: l[at] }));
    plots[k].innerHTML = chart({
      width: widths[k],
      height: s.compact ? 220 : 300,
      x,
      y,
      lines: some,
      now: s.ratio,
      title,
      id: `${id}-${k}`,
    });
  });
  root.querySelector(".table").innerHTML = tableOf(
    ["surrogate", "ratio", "A", "gate", "push", "objective"],
    labelled.map((l) => [
      l.label,
      number(s.ratio),
      signed(s.advantage),
      number(l.gate),
      signed(l.push),
      signed(l.value),
    ]),
  );
}

// ---- the controls ----

const controls = (s) =>
  bar(presetChoice(s)) +
  more(chooser("surrogates", "surrogate", s.specs, MANY)) +
  bar(
    slider("ratio", "importance ratio ρ", 'min="0.05" max="4" step="0.05"'),
    select("advantage", "sign of A", [
      ["1", "A = +1: push up"],
      ["-1", "A = −1: push down"],
    ]),
  ) +
  more(
    field("eps_low", "eps low", 'min="0" step="0.01"'),
    field("eps_high", "eps high", 'min="0" step="0.01"'),
    field("cap", "dual clip cap", 'min="1" step="0.1"'),
    field("high", "CISPO cap", 'min="0" step="0.01"'),
    field("tau_pos", "SAPO τ, A > 0", 'min="0.01" step="0.05"'),
    field("tau_neg", "SAPO τ, A < 0", 'min="0.01" step="0.05"'),
  );

function shown(key, s, i) {
  if (key === "surrogates") return { value: s.surrogates[i] ?? "none" };
  if (key === "ratio") return { value: s.ratio, text: s.ratio.toFixed(2) };
  return { value: key === "advantage" ? String(s.advantage) : s[key] };
}

const changes = {
  preset: presetState,
  surrogates: chosen("surrogates", MANY),
  ratio: (input) => ({ ratio: Number(input.value) }),
  advantage: (input) => ({ advantage: Number(input.value) }),
  eps_low: asNumber("eps_low", "eps low", { min: 0 }),
  eps_high: asNumber("eps_high", "eps high", { min: 0 }),
  cap: asNumber("cap", "dual clip cap", { min: 1 }),
  high: asNumber("high", "CISPO cap", { min: 0 }),
  tau_pos: asNumber("tau_pos", "SAPO τ", { min: 0.01 }),
  tau_neg: asNumber("tau_neg", "SAPO τ", { min: 0.01 }),
};

const keys = [
  "specs",
  "surrogates",
  "advantage",
  "ratio",
  "eps_low",
  "eps_high",
  "cap",
  "high",
  "tau_pos",
  "tau_neg",
  ...FRAME,
];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
