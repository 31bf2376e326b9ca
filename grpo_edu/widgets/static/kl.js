// The KL explorer: the estimators on a policy of two actions, both enumerated.

import { KL, k3, need, sum } from "./objective.js";
import {
  FRAME,
  bar,
  barsOf,
  explorer,
  number,
  presetChoice,
  presetState,
  signed,
  slider,
  tableOf,
} from "./shared.js";

const VALUES = { k1: (d) => d, k2: (d) => (d * d) / 2, k3: (d) => k3(d) };
const SLOPES = { k1: "k1", k2: "k2", k3: "k3", "ratio · k3": "k3_ratio" };

/* {values, gradients, truths, reverse}: by name; a value has action 1, action 2 and the mean. */
export function answer({ p, q, beta }) {
  need(p > 0 && p < 1, "p", p, "a probability between 0 and 1, ends excluded");
  need(q > 0 && q < 1, "q", q, "a probability between 0 and 1, ends excluded");
  need(beta > 0, "beta", beta, "above 0");
  const chance = [p, 1 - p];
  const d = [Math.log(p / q), Math.log((1 - p) / (1 - q))]; // log π/π_ref
  const score = [1 - p, -p]; // of log π by the logit of action 1
  const expected = (numbers) => sum(numbers.map((x, a) => chance[a] * x));
  const valuesOf = (value) => d.map((x) => beta * value(x));
  const values = Object.entries(VALUES).map(([name, value]) => {
    const both = valuesOf(value);
    return [name, [...both, expected(both)]];
  });
  const inLoss = Object.entries(SLOPES).map(([name, slope]) => {
    const pulls = d.map((x, a) => KL[slope]([x], [0], { beta })[0] * score[a]);
    return [`${name} in the loss`, expected(pulls)];
  });
  const inReward = ["k1", "k3"].map((name) => {
    const pulls = valuesOf(VALUES[name]).map((x, a) => x * score[a]);
    return [`${name} in the reward`, expected(pulls)];
  });
  return {
    values: Object.fromEntries(values),
    gradients: Object.fromEntries([...inLoss, ...inReward]),
    truths: {
      "reverse KL(π‖ref)": beta * p * (1 - p) * (d[0] - d[1]),
      "forward KL(ref‖π)": beta * (p - q),
    },
    reverse: beta * expected(d),
  };
}

const PLACES = ["action 1", "action 2", "mean under π"];

function draw(root, _s, { values, gradients, truths, reverse }) {
  const picture = root.querySelector(".picture");
  const names = Object.entries(truths).map(([name, x]) => `${name} ${signed(x)}`);
  picture.innerHTML = `<div class="panels">
    <section data-panel="value"><h4>value<span class="soft">of each estimator; the dashed line is
    the reverse KL, ${number(reverse)}</span></h4><div class="plot"></div></section>
    <section data-panel="gradient"><h4>expected gradient<span class="soft">by the logit of action 1
    </span></h4><div class="plot"></div></section></div>
    <p class="soft">exact, both actions enumerated; at the right dashed: ${names[0]}, dotted:
    ${names[1]}</p>`;
  const [left, right] = picture.querySelectorAll(".plot");
  left.innerHTML = barsOf({
    width: Math.floor(left.clientWidth),
    title: "value of the estimators",
    lines: Object.entries(values).flatMap(([name, numbers]) =>
      numbers.map((value, k) => ({ name: `${name}, ${PLACES[k]}`, value, gap: k === 0 })),
    ),
    marks: [{ name: "reverse KL", value: reverse }],
  });
  right.innerHTML = barsOf({
    width: Math.floor(right.clientWidth),
    title: "expected gradient by the logit of action 1",
    lines: Object.entries(gradients).map(([name, value]) => ({ name, value })),
    marks: Object.entries(truths).map(([name, value]) => ({ name, value })),
  });
  root.querySelector(".table").innerHTML =
    tableOf(
      ["estimator", ...PLACES],
      Object.entries(values).map(([name, numbers]) => [name, ...numbers.map(signed)]),
    ) +
    tableOf(
      ["place", "expected gradient"],
      Object.entries({ ...gradients, ...truths }).map(([name, x]) => [name, signed(x)]),
    );
}

const CHANCE = 'min="0.05" max="0.95" step="0.05"';
const controls = (s) =>
  bar(presetChoice(s)) +
  bar(
    slider("p", "policy: probability of action 1", CHANCE),
    slider("q", "reference: probability of action 1", CHANCE),
    slider("beta", "β", 'min="0.01" max="1" step="0.01"', "beta"),
  );

const shown = (key, s) => ({
  value: s[key],
  text: typeof s[key] === "number" ? s[key].toFixed(2) : undefined,
});
const asIs = (key) => (input) => ({ [key]: Number(input.value) });
const changes = { preset: presetState, p: asIs("p"), q: asIs("q"), beta: asIs("beta") };

const keys = ["p", "q", "beta", ...FRAME];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
