// The stepper: from the reward to the push of every token, one stage of the formula at a time.

import { isDead, mean, need, pushOf, spreadOf, sum } from "./objective.js";
import {
  FRAME,
  attributes,
  bar,
  chooser,
  chosen,
  colour,
  escaped,
  explorer,
  field,
  number,
  parse,
  percent,
  presetChoice,
  presetState,
  replaced,
  signed,
  tableOf,
} from "./shared.js";

// The stages in their order; a recipe has those that its formula has.
const ORDER = [
  "reward",
  "shaping",
  "baseline",
  "centred",
  "scale",
  "advantage",
  "ratio",
  "gate",
  "correction",
  "W",
  "kl",
  "push",
  "share",
];
const BUILDS_A = ORDER.slice(0, 6);
const FACTORS = ["advantage", "ratio", "gate", "correction", "W", "kl"];
const RECIPES = 2;
const LONGEST = 12;
const MANY = 6;
const ONE_S = ["gspo", "gspo_token", "gmpo", "sequence_product"];

// What a new token has, trait by trait.
const PER_TOKEN = {
  old: 0.2,
  new: 0.2,
  ref: 0.2,
  sampler: 0.2,
  entropy: 1,
  value: 0.5,
  given: 1,
  step_rewards: null,
};

function check({ recipes, rewards, old, token }) {
  need(recipes.length > 0, "the choice of recipes", "empty", "at least one");
  need(rewards.length === old.length, "the number of rewards", rewards.length, old.length);
  const [i, t] = token;
  need(i < old.length, "the answer", i + 1, `1 to ${old.length}`);
  need(
    t < old[i].length,
    "the token",
    t + 1,
    `1 to ${old[i].length}, the length of answer ${i + 1}`,
  );
}

function fieldsOf(s, needs) {
  const logs = (over, under) =>
    s[over].map((row, i) => row.map((p, t) => Math.log(p) - Math.log(s[under][i][t])));
  const asked = (trait, value) => (needs.includes(trait) ? value() : undefined);
  return {
    rewards: s.rewards,
    lengths: s.old.map((row) => row.length),
    group: s.group,
    logRatio: logs("new", "old"),
    logRef: asked("ref", () => logs("new", "ref")),
    logSampler: asked("sampler", () => logs("old", "sampler")),
    logOld: s.old.map((row) => row.map(Math.log)),
    entropy: asked("entropy", () => s.entropy),
    greedy: asked("greedy", () => s.greedy),
    parts: asked("parts", () => s.parts),
    given: asked("given", () => s.given),
    value: asked("value", () => s.value),
    tokenReward: asked("step_rewards", () => s.step_rewards),
    limit: s.max_new_tokens,
    micro: s.rewards.map(() => 0),
  };
}

/* One answer per recipe: all that `pushOf` gives, or {name, error}. Throws on a state that is
   wrong. */
export function answer(state) {
  check(state);
  return state.recipes.map((name) => {
    const spec = state.specs[name];
    try {
      return { name, spec, ...pushOf(spec, fieldsOf(state, spec.needs)) };
    } catch (error) {
      return { name, spec, error: error.message };
    }
  });
}

// ---- numbers as people write them ----

const DENOMINATORS = [2, 3, 4, 6, 7, 8, 9, 12, 16];
// A fraction where the number is one with a small denominator, else four digits.
function exact(x) {
  const size = Math.abs(x);
  const below = DENOMINATORS.find((d) => Math.abs(size * d - Math.round(size * d)) < 1e-9);
  const shown =
    size > 1e-9 && size < 1 && below ? `${Math.round(size * below)}/${below}` : digits(size);
  return (x < 0 && size > 0 ? "−" : "") + shown;
}
const digits = (x) => {
  const size = Math.abs(x);
  if (x !== 1 && Math.abs(x - 1) < 0.001) return String(Number(x.toPrecision(7)));
  const text = size > 0 && size < 1e-4 ? size.toExponential(1).replace("e-", "e−") : null;
  return (x < 0 ? "−" : "") + (text ?? String(Number(size.toPrecision(4))));
};
const inSum = (x) => (x < 0 ? `(${exact(x)})` : exact(x));
const inQuotient = (x) => (exact(x).match(/[/−]/) ? `(${exact(x)})` : exact(x));
const plus = (xs) => xs.map(inSum).join(" + ");
const meanOf = (xs) => `(${plus(xs)})/${xs.length}`;
const squares = (xs, m) => xs.map((x) => `(${exact(x - m)})²`).join(" + ");
const and = (xs) =>
  xs.length < 2 ? xs.join("") : `${xs.slice(0, -1).join(", ")} and ${xs[xs.length - 1]}`;
const tidy = (x) => (Math.abs(x) < 1e-13 ? 0 : x);

// ---- what each stage says of one token: {math, say} ----

/* Everything that a stage looks at: the result and its spec, the token [i, t], the rows and
   rewards of its group, and of all. */
function contextOf(r, s) {
  const [i, t] = s.token;
  const rows = r.batch.members.get(s.group[i]);
  const at = (values) => tidy(Array.isArray(values[i]) ? values[i][t] : values[i]);
  return {
    ...r,
    s,
    i,
    t,
    at,
    rows,
    peers: rows.map((j) => r.rewards[j]),
    others: rows.filter((j) => j !== i).map((j) => r.rewards[j]),
    length: s.old[i].length,
    lengths: r.batch.tokens,
    A: at(r.advantage),
    who: `answer ${i + 1}`,
    Who: `Answer ${i + 1}`,
    taken: r.batch.present[i],
  };
}

const steps = ({ rows, tokenReward }) =>
  rows.flatMap((j) => tokenReward[j]).filter((x) => x !== null);
const later = ({ tokenReward, i, t }) => tokenReward[i].slice(t).filter((x) => x !== null);
const spread = (xs, ddof) =>
  `std = √((${squares(xs, mean(xs))})/${ddof === 0 ? xs.length : `(${xs.length} − ${ddof})`}) = ` +
  `${exact(spreadOf(xs, ddof))}`;

const plainReward = ({ Who, rewards, i }) => ({
  math: `r = ${exact(rewards[i])}`,
  say:
    `${Who} got reward ${exact(rewards[i])}. A reward says how good the whole answer ` +
    `(completion) is. The steps turn it into a push for each token: how hard one training step ` +
    `moves the probability of that token.`,
});
const REWARD_STEPS = {
  process_supervision: ({ Who, tokenReward, i }) => {
    const ends = tokenReward[i].flatMap((x, t) =>
      x === null ? [] : [`${exact(x)} at token ${t + 1}`],
    );
    return {
      math: `step rewards: ${ends.join(", ") || "none"}`,
      say:
        `${Who} is graded step by step: the last token of each step carries a reward of its ` +
        `own.`,
    };
  },
  decoupled_rewards: ({ Who, batch, i }) => ({
    math: batch.parts[i].map((x, k) => `r${"¹²³⁴"[k]} = ${exact(x)}`).join(", "),
    say:
      `${Who} got one reward from each reward function, for example one for being right and ` +
      `one for its form.`,
  }),
};

const SHAPING_STEPS = {
  kl_in_token_reward: ({ spec, s, i, t, tokenReward, at }) => ({
    math:
      `r_t − β · log(π_old/π_ref) = 0 − ${number(spec.rewards[0].beta)} · ` +
      `log(${digits(s.old[i][t])}/${digits(s.ref[i][t])}) = ${digits(at(tokenReward))}`,
    say:
      "Every token pays a small price where the policy had left the reference policy; the " +
      "reward of the answer comes on top at its last token.",
  }),
};
const otherShaping = ({ rewards, i }) => ({
  math: `shaped r = ${digits(rewards[i])}`,
  say: "The recipe changes the reward before it compares the answers.",
});

const BASELINE_STEPS = {
  greedy: ({ batch, i }) => ({
    math: `r(greedy) = ${exact(batch.greedy[i])}`,
    say:
      `The greedy answer, which always takes the most probable token, got ` +
      `${exact(batch.greedy[i])}. It is what answers are compared with.`,
  }),
  leave_one_out: ({ others, who }) => ({
    math: `mean of the others = ${meanOf(others)} = ${exact(mean(others))}`,
    say:
      `The other answers to the question got ${and(others.map(exact))}: ${who} is compared ` +
      `with their mean, without itself.`,
  }),
  length_weighted_mean({ rows, lengths, peers, at, rewards, centred }) {
    const products = rows.map((j, k) => `${lengths[j]}·${exact(peers[k])}`).join(" + ");
    return {
      math:
        `mean = (${products})/(${rows.map((j) => lengths[j]).join(" + ")}) = ` +
        `${exact(at(rewards) - at(centred))}`,
      say: "The mean of the rewards counts an answer by its number of tokens.",
    };
  },
  gae({ s, i, t, length }) {
    const next = t + 1 < length ? digits(s.value[i][t + 1]) : "0 (the answer ends)";
    return {
      math: `V(t) = ${digits(s.value[i][t])}, V(t+1) = ${next}`,
      say: "A second network, the value model, says which reward it expects before each token.",
    };
  },
  process_supervision: (c) => ({
    math: `mean = ${meanOf(steps(c))} = ${exact(mean(steps(c)))}`,
    say: "This is the mean over all steps of all answers to the question.",
  }),
  decoupled_rewards: ({ batch, rows }) => ({
    math: batch.parts[0]
      .map((_, k) => {
        const part = rows.map((j) => batch.parts[j][k]);
        return `mean${"¹²³⁴"[k]} = ${meanOf(part)} = ${exact(mean(part))}`;
      })
      .join("; "),
    say: "Each reward function has a mean of its own, so that no reward drowns another.",
  }),
  length_adaptive_gae: (c) => BASELINE_STEPS.gae(c),
  pass_at_k_training: ({ peers, spec }) => ({
    math:
      `c = ${peers.filter((x) => x > 0).length} right of G = ${peers.length}, ` +
      `k = ${spec.baseline.k}`,
    say:
      "The recipe looks at every set of k answers to the question. A set is right if one of its " +
      "answers is.",
  }),
  pass_at_k: ({ peers }) => ({
    math: `c = ${peers.filter((x) => x > 0).length} right of G = ${peers.length}`,
    say:
      "The recipe counts the right answers to the question: a wrong one matters only where " +
      "few others are right.",
  }),
};
const groupMean = ({ peers }) => ({
  math: `mean = ${meanOf(peers)} = ${exact(mean(peers))}`,
  say:
    `The ${peers.length} answers to this question got ${and(peers.map(exact))}. Their mean is ` +
    `${exact(mean(peers))}: what an answer to this question usually gets.`,
});

const CENTRED_STEPS = {
  gae({ spec, s, i, t, length, rewards }) {
    const { gamma } = spec.baseline;
    const reward = t + 1 === length ? rewards[i] : 0;
    const next = t + 1 < length ? s.value[i][t + 1] : 0;
    return {
      math:
        `δ = r + γ·V(t+1) − V(t) = ${exact(reward)} + ${number(gamma)}·${digits(next)} − ` +
        `${digits(s.value[i][t])} = ${digits(reward + gamma * next - s.value[i][t])}`,
      say:
        "This is how much better the token went than expected. The reward of the answer " +
        "arrives at its last token.",
    };
  },
  return_to_go: ({ at, centred, t }) => ({
    math: `sum of the rewards from token ${t + 1} to the end = ${digits(at(centred))}`,
    say: "A token is credited with all the reward that is still to come.",
  }),
  decoupled_rewards({ batch, rows, i, spec, at, centred }) {
    const term = (_, k) => {
      const part = rows.map((j) => batch.parts[j][k]);
      const std = spreadOf(part, spec.baseline.ddof);
      return std > 0
        ? `(${exact(batch.parts[i][k])} − ${exact(mean(part))})/${inQuotient(std)}`
        : "0";
    };
    return {
      math: `${batch.parts[0].map(term).join(" + ")} = ${digits(at(centred))}`,
      say:
        "Each reward is centred and divided by its own standard deviation; then the scores " +
        "are added.",
    };
  },
  live_group_mean({ at, centred, rewards, peers, batch }) {
    const live = batch.rows.filter(
      (i) => !isDead(batch.members.get(batch.group[i]).map((j) => rewards[j])),
    );
    if (live.length === 0)
      return {
        math: "r − mean = 0",
        say: "No question has a signal: all its answers got the same reward.",
      };
    return {
      math:
        `N/N_live · (r − mean) = ${batch.rows.length}/${live.length} · ` +
        `(${exact(at(rewards))} − ${exact(mean(peers))}) = ${exact(at(centred))}`,
      say:
        "The difference is made larger where some questions have no signal, to make up for " +
        "them.",
    };
  },
};
const COMPARED = {
  greedy: ["r(greedy)", "the greedy answer"],
  leave_one_out: ["mean of the others", "the mean of the others"],
};
function difference({ spec, at, rewards, centred, Who }) {
  const [left, whom] = COMPARED[spec.baseline.name] ?? ["mean", "the mean"];
  const own = at(rewards);
  const c = at(centred);
  const where = {
    1: `${exact(c)} better than ${whom}`,
    "-1": `${exact(-c)} worse than ${whom}`,
    0: `as good as ${whom}`,
  };
  return {
    math: `r − ${left} = ${exact(own)} − ${inSum(own - c)} = ${exact(c)}`,
    say: `${Who} is ${where[Math.sign(c)]}.`,
  };
}

const SCALE_STEPS = {
  group_std: ({ peers, spec }) => ({
    math: spread(peers, spec.scale.ddof),
    say: isDead(peers)
      ? "All answers got the same reward: there is nothing to compare, and the advantage will be 0."
      : "The standard deviation (std) says how far the rewards lie from their mean. A question " +
        "that is almost always or almost never solved has a small one, so dividing by it makes " +
        "its answers count more.",
  }),
  batch_std: ({ rewards, spec }) => ({
    math: spread(rewards, spec.scale.ddof),
    say: "This standard deviation is taken over all answers of the batch, whatever their question.",
  }),
  group_mean_scale: ({ peers }) => ({
    math: `mean = ${meanOf(peers)} = ${exact(mean(peers))}`,
    say:
      "The mean reward is the rate of right answers. Dividing by it makes hard questions " +
      "count more.",
  }),
  token_whiten: ({ lengths, centred, spec }) => {
    const laid = lengths.flatMap((n, i) =>
      Array.isArray(centred[i]) ? centred[i].slice(0, n) : Array(n).fill(centred[i]),
    );
    return {
      math:
        `mean = ${digits(tidy(mean(laid)))}, std = ` +
        `${digits(spreadOf(laid, spec.scale.ddof))} over ${laid.length} tokens`,
      say:
        "Mean and standard deviation are taken over all tokens of the batch, so long answers " +
        "count more in them.",
    };
  },
  batch_whiten: ({ centred, spec }) => ({
    math:
      `mean = ${digits(tidy(mean(centred)))}, std = ` +
      `${digits(spreadOf(centred, spec.scale.ddof))}`,
    say: "Mean and standard deviation of these sums are taken over all answers of the batch.",
  }),
};
const stepScale = (c) => ({
  math: spread(steps(c), c.spec.baseline.ddof),
  say: "This is the standard deviation over all steps of all answers to the question.",
});
const otherScale = ({ at, centred, A }) => ({
  math: A === 0 ? "scale" : `scale = ${digits(at(centred) / A)}`,
  say: "The recipe divides by this number.",
});

const direction = (A, whom) =>
  ({
    1: `A > 0: the reward asks to make ${whom} more likely.`,
    "-1": `A < 0: the reward asks to make ${whom} less likely.`,
    0: `A = 0: the reward asks for nothing from ${whom}.`,
  })[Math.sign(A)];
const ADVANTAGE_STEPS = {
  given: ({ A, who, t }) => ({
    math: `A = ${digits(A)}`,
    say:
      `The advantage comes from outside, from a value model for example. ` +
      `${direction(A, `token ${t + 1} of ${who}`)}`,
  }),
  right_and_wrong: ({ spec, A, who, at, rewards }) => ({
    math: `A = ${at(rewards) > 0 ? `λ = ${number(spec.baseline.positive)}` : "−1"}`,
    say:
      `Answers are not compared. A right one counts ${number(spec.baseline.positive)}, a wrong ` +
      `one −1. ${direction(A, `every token of ${who}`)}`,
  }),
  teacher_log_ratio: ({ s, i, t, A, who }) => ({
    math:
      `A = log(π_teacher/π_old) = log(${digits(s.ref[i][t])}/${digits(s.old[i][t])}) = ` +
      `${digits(A)}`,
    say:
      "A token is good where the teacher (the reference policy) finds it more likely than the " +
      `policy did. ${direction(A, `token ${t + 1} of ${who}`)}`,
  }),
  pass_at_k_training: ({ A, who }) => ({
    math: `A = ${digits(A)}`,
    say:
      "The advantage is the mean over all sets of k that hold this answer, each set centred and " +
      `divided by the standard deviation of the sets. ${direction(A, `every token of ${who}`)}`,
  }),
  length_adaptive_gae: (c) =>
    ADVANTAGE_STEPS.gae({
      ...c,
      spec: {
        baseline: {
          gamma: c.spec.baseline.gamma,
          lam: 1 - 1 / Math.max(1, c.spec.baseline.alpha * c.length),
        },
      },
    }),
  gae({ spec, at, centred, advantage, i, t, length, s, rewards, A, who }) {
    const { gamma, lam } = spec.baseline;
    const ahead = t + 1 < length ? advantage[i][t + 1] : 0;
    const next = t + 1 < length ? s.value[i][t + 1] : 0;
    const delta = (t + 1 === length ? rewards[i] : 0) + gamma * next - s.value[i][t];
    return {
      math:
        `A(t) = δ + γλ·A(t+1) = ${digits(delta)} + ${number(gamma * lam)}·${digits(ahead)} = ` +
        `${digits(at(centred))}`,
      say:
        `Each token has an advantage of its own: its own surprise and, weaker and weaker, ` +
        `those that follow. ${direction(A, `token ${t + 1} of ${who}`)}`,
    };
  },
  process_supervision(c) {
    const pool = steps(c);
    const std = spreadOf(pool, c.spec.baseline.ddof);
    const terms = later(c).map((x) => `(${exact(x)} − ${exact(mean(pool))})/${inQuotient(std)}`);
    return {
      math: `A = ${std > 0 && terms.length ? terms.join(" + ") : "0"} = ${digits(c.A)}`,
      say:
        `A token is credited with the steps that end at it or after it. ` +
        `${direction(c.A, `token ${c.t + 1} of ${c.who}`)}`,
    };
  },
  pass_at_k({ spec, peers, at, rewards, A, who }) {
    const { k } = spec.baseline;
    const wrong = peers.length - 1 - peers.filter((x) => x > 0).length;
    const chance = `C(${wrong}, ${k - 1})/C(${peers.length - 1}, ${k - 1})`;
    return {
      math: at(rewards) > 0 ? `A = k = ${k}` : `A = ${k}·(1 − ${chance}) = ${exact(A)}`,
      say: `The advantage is not centred. ${direction(A, `every token of ${who}`)}`,
    };
  },
};
function scaledAdvantage({ spec, at, centred, A, who }) {
  const c = at(centred);
  const whom = `every token of ${who}`;
  const middle = spec.scale.name.endsWith("whiten")
    ? `(${digits(c)} − mean)/std`
    : `${inQuotient(c)} / ${inQuotient(c / A)}`;
  if (spec.scale.name === "unscaled")
    return {
      math: `A = ${exact(A)}`,
      say: `The recipe does not divide by a standard deviation. ${direction(A, whom)}`,
    };
  return { math: A === 0 ? "A = 0" : `A = ${middle} = ${digits(A)}`, say: direction(A, whom) };
}

const oldAndNew = ({ s, i, t }) => [digits(s.new[i][t]), digits(s.old[i][t])];
const ratios = ({ s, i }) => s.new[i].map((p, t) => p / s.old[i][t]);
const productText = (c) => ratios(c).map(digits).join(" · ");
const logSettings = ({ eps_low, eps_high }, A) =>
  A > 0 ? [`min(`, `, e^${number(eps_high)})`] : [`max(`, `, e^−${number(eps_low)})`];
const geometricText = (c) => `s = (${productText(c)})^(1/${c.length}) = ${digits(c.at(c.ratio))}`;
const oneRatio = (c) => ({
  math: geometricText(c),
  say:
    `There is one ratio for the whole answer: the geometric mean of its ${c.length} token ` +
    `ratios (they stand in the boxes now). All its tokens share it.`,
});
const RATIO_STEPS = {
  gspo: oneRatio,
  gspo_token: oneRatio,
  sequence_product: (c) => ({
    math: `ρ_i = ${productText(c)} = ${digits(c.at(c.ratio))}`,
    say: "There is one ratio for the whole answer: the product of its token ratios.",
  }),
  vespo: (c) => ({
    math: `w = ${productText(c)} = ${digits(c.at(c.ratio))}`,
    say: "There is one ratio for the whole answer: the product of its token ratios.",
  }),
  topr: (c) =>
    c.A < 0
      ? RATIO_STEPS.vespo(c)
      : { math: "w = 1", say: "A good answer is pushed up without a ratio." },
  gmpo(c) {
    const [before, after] = logSettings(c.spec.surrogate, c.A);
    const terms = ratios(c).map((x) => `${before}${digits(x)}${after}`);
    return {
      math: `(${terms.join(" · ")})^(1/${c.length}) = ${digits(c.at(c.ratio))}`,
      say:
        "Each token ratio is first held within its bound; then one geometric mean of them " +
        "stands for the whole answer.",
    };
  },
};
function tokenRatio(c) {
  const [now, before] = oldAndNew(c);
  const r = c.at(c.ratio);
  const moved = { 1: "more likely than", "-1": "less likely than", 0: "as likely as" };
  return {
    math: `ρ = π_new/π_old = ${now}/${before} = ${digits(r)}`,
    say:
      `The policy now gives token ${c.t + 1} the probability ${now}; when it wrote the answer ` +
      `it was ${before}. The token is ${moved[Math.sign(tidy(r - 1))]} it was.`,
  };
}

// Where a ratio is against the band of the clip, and whether the clip takes its gradient.
function sideOf(ratio, A, { eps_low, eps_high }) {
  const high = `1 + ${number(eps_high)}`;
  const low = `1 − ${number(eps_low)}`;
  if (ratio > 1 + eps_high) return { relation: `> ${high}`, bound: high, cut: A > 0 };
  if (ratio < 1 - eps_low) return { relation: `< ${low}`, bound: low, cut: A < 0 };
  return { relation: `is between ${low} and ${high}`, inside: true };
}
const signText = (A) => ({ 1: "A > 0", "-1": "A < 0", 0: "A = 0" })[Math.sign(A)];
const UP = ["good (A > 0)", "rise", "at most", "above", "up"];
const DOWN = ["bad (A < 0)", "fall", "at least", "below", "down"];

// Why the clip takes a gradient: whose ratio it is, the ratio, and who loses the gradient.
function cutText(c, { bound }, whose, outcome) {
  const [kind, go, limit, beyond, way] = c.A > 0 ? UP : DOWN;
  return (
    `${c.Who} is ${kind}, so the ${whose} may ${go} to ${bound} ${limit}. It is ` +
    `${digits(c.at(c.ratio))}, already ${beyond} that, so the clip stops the push ${way}. ` +
    `${outcome}`
  );
}
const keptText = (side, whose, who) =>
  side.inside
    ? `The ${whose} is inside the band of the clip: ${who} the gradient.`
    : `The ${whose} is outside the band of the clip, but the push leads back into it: ${who} the ` +
      `gradient.`;
// Why there is a clip, and why the limits of one ratio per answer are so small; there is no room
// for it in a small frame.
function whyClip({ s, spec }) {
  if (s.compact) return "";
  const small = " A mean over many tokens moves little, so its limits are this small.";
  const whole = spec.surrogate.name.startsWith("gspo");
  return ` The clip keeps one batch from moving the policy too far.${whole ? small : ""}`;
}
const gateText = (c, left, side) =>
  `${left} ${side.relation}, ${signText(c.A)} → g = ${number(c.at(c.gate))}`;

function wholeGate(c) {
  const side = sideOf(c.at(c.ratio), c.A, c.spec.surrogate);
  const whose = "ratio of the whole answer";
  const outcome =
    `All ${c.length} tokens share this one ratio, so all ${c.length} get gate 0: ` +
    `also those whose own probability did not change.${whyClip(c)}`;
  return {
    math: gateText(c, RATIO_STEPS[c.spec.surrogate.name](c).math, side),
    say: side.cut
      ? cutText(c, side, whose, outcome)
      : keptText(side, whose, `all ${c.length} tokens keep`),
  };
}
function tokenGate(c) {
  const side = sideOf(c.at(c.ratio), c.A, c.spec.surrogate);
  const capped = c.A < 0 && c.at(c.ratio) > c.spec.surrogate.cap;
  const whose = `ratio of token ${c.t + 1}`;
  const outcome =
    `Only this token gets gate 0: the other tokens of ${c.who} have ratios of their ` +
    `own.${whyClip(c)}`;
  const text = side.cut
    ? cutText(c, side, whose, outcome)
    : keptText(side, whose, "the token keeps");
  return {
    math: gateText(c, `ρ = ${digits(c.at(c.ratio))}`, side),
    say: capped
      ? `The ratio is above the cap ${number(c.spec.surrogate.cap)}: the token loses its gradient.`
      : text,
  };
}
const CUT = {
  true:
    "The token is outside the trust region and the push leads further out: it gets no " +
    "gradient.",
  false:
    "The token is inside the trust region, or the push leads back into it: it keeps its gradient.",
};
const GATE_STEPS = {
  importance: () => ({ math: "g = 1", say: "There is no clip: every token keeps its gradient." }),
  dppo_tv(c) {
    const [now, before] = oldAndNew(c);
    const { delta_low, delta_high } = c.spec.surrogate;
    const moved = digits(c.s.new[c.i][c.t] - c.s.old[c.i][c.t]);
    const bound = c.A > 0 ? `at most ${number(delta_high)}` : `at least −${number(delta_low)}`;
    return {
      math: `π_new − π_old = ${now} − ${before} = ${moved} (${bound}), g = ${digits(c.at(c.gate))}`,
      say: CUT[c.at(c.gate) === 0],
    };
  },
  dppo_kl: (c) => ({
    math: `g = ${digits(c.at(c.gate))}`,
    say: CUT[c.at(c.gate) === 0],
  }),
  vespo(c) {
    const { k_pos, lam_pos, k_neg, lam_neg } = c.spec.surrogate;
    const [k, lam] = c.A >= 0 ? [k_pos, lam_pos] : [k_neg, lam_neg];
    const w = digits(c.at(c.ratio));
    return {
      math: `g = ${w}^(${number(k)} − 1) · e^(${number(lam)}·(1 − ${w})) = ${digits(c.at(c.gate))}`,
      say: "The weight is 1 where the answer is as likely as it was and fades on both sides.",
    };
  },
  topr: (c) => ({
    math: `g = min(w, ${number(c.spec.surrogate.cap)})/w = ${digits(c.at(c.gate))}`,
    say:
      c.A < 0
        ? "A bad answer that has become less likely is pushed down less; the ratio is never " +
          `above ${number(c.spec.surrogate.cap)}.`
        : "A good answer keeps its gradient, whatever its ratio.",
  }),
  gspo: wholeGate,
  gspo_token: wholeGate,
  sequence_product: wholeGate,
  gmpo(c) {
    const rho = ratios(c)[c.t];
    const { eps_low, eps_high } = c.spec.surrogate;
    const bound = c.A > 0 ? `≤ e^${number(eps_high)}` : `≥ e^−${number(eps_low)}`;
    const beyond = c.A > 0 ? `> e^${number(eps_high)}` : `< e^−${number(eps_low)}`;
    const cut = c.at(c.gate) === 0;
    return {
      math:
        `ρ = ${digits(rho)} ${cut ? beyond : bound}, ${signText(c.A)} → g = ` +
        `${number(c.at(c.gate))}`,
      say: cut
        ? "This token is beyond its bound and loses its gradient; the other tokens of the answer " +
          "keep theirs."
        : "This token is within its bound and keeps its gradient.",
    };
  },
  cispo(c) {
    const { low, high } = c.spec.surrogate;
    const held = c.at(c.ratio) > high || c.at(c.ratio) < low;
    return {
      math:
        `g = clip(ρ, ${number(low)}, ${number(high)})/ρ = ` +
        `${digits(c.at(c.ratio) * c.at(c.gate))}/${digits(c.at(c.ratio))} = ` +
        `${digits(c.at(c.gate))}`,
      say: held
        ? "The ratio is held at its cap, which weakens the push; no token loses its gradient."
        : "The ratio is below its cap: the gradient stays as it is. No token ever loses it.",
    };
  },
  sapo(c) {
    const tau = c.A > 0 ? c.spec.surrogate.tau_pos : c.spec.surrogate.tau_neg;
    return {
      math:
        `y = ${number(tau)}·(${digits(c.at(c.ratio))} − 1), g = 4·σ(y)·(1 − σ(y)) = ` +
        `${digits(c.at(c.gate))}`,
      say:
        "The gate is 1 where the ratio is 1 and fades smoothly on both sides: no token is " +
        "cut, but one that has moved far is pushed less.",
    };
  },
};

const counted = ({ batch }) => batch.present.filter(Boolean).length;
const promptsOf = ({ batch }) => new Set(batch.group.filter((_, i) => batch.present[i])).size;
const inGroup = ({ rows, lengths }) => rows.map((j) => lengths[j]);
const constantOf = ({ spec, s }) => spec.aggregation.length ?? s.max_new_tokens;
const W_STEPS = {
  sequence_mean: (c) => [
    `1/${counted(c)} · 1/${c.length}`,
    `Each of the ${counted(c)} answers weighs 1/${counted(c)}, and inside ${c.who} each of its ` +
      `${c.length} tokens weighs 1/${c.length}. A token of a longer answer weighs less.`,
  ],
  sequence_sum: (c) => [
    `1/${counted(c)}`,
    "Every token of every answer weighs the same: 1 over the number of answers.",
  ],
  step_token_mean: (c) => [
    `1/(${c.lengths.join(" + ")})`,
    "Every token of the step weighs the same: 1 over the number of all tokens.",
  ],
  prompt_token_mean: (c) => [
    `1/${promptsOf(c)} · 1/(${inGroup(c).join(" + ")})`,
    "Every question weighs the same, and inside a question every token does, whichever answer it " +
      "belongs to.",
  ],
  micro_batch_token_mean: (c) => [
    `1/1 · 1/(${c.lengths.join(" + ")})`,
    "Every token of a micro-batch weighs the same; here all answers share one micro-batch.",
  ],
  constant: (c) => [
    `1/${counted(c)} · 1/${constantOf(c)}`,
    "Every token weighs the same in every step: a constant C stands in place of the length of " +
      "the answer.",
  ],
  constant_sum: (c) => [`1/${constantOf(c)}`, "Every token weighs the same: 1 over a constant."],
  length_power(c) {
    const { alpha } = c.spec.aggregation;
    const powers = inGroup(c).map((n) => `${n}^−${number(alpha)}`);
    return [
      `1/${counted(c)} · 1/${constantOf(c)} · ` +
        `${c.length}^−${number(alpha)}/mean(${powers.join(", ")})`,
      "A token of a longer answer weighs somewhat less: by a power of the length.",
    ];
  },
  balanced(c) {
    const side = (j) => Math.sign(sum(c.advantage[j]));
    const same = c.rows.filter((j) => side(j) === side(c.i));
    return [
      `1/${promptsOf(c)} · ${same.length}/${c.rows.length} · ` +
        `1/(${same.map((j) => c.lengths[j]).join(" + ")})`,
      "Right and wrong answers are averaged apart, so long wrong answers do not outweigh short " +
        "right ones.",
    ];
  },
};
const otherW = () => ["", "This is the weight that the aggregation gives to the token."];

function pullOf({ spec, s, i, t }) {
  const now = digits(s.new[i][t]);
  const ref = digits(s.ref[i][t]);
  const old = digits(s.old[i][t]);
  return {
    k1: "1",
    k2: `log(${now}/${ref})`,
    k3: `(1 − ${ref}/${now})`,
    k2_old: `log(${now}/${old})`,
  }[spec.kl.name];
}
const factorsOf = (c) => [
  ["A", c.A],
  ["W", c.at(c.W)],
  ...(c.spec.surrogate.name === "reinforce"
    ? []
    : [
        ["ρ", c.at(c.ratio)],
        ["g", c.at(c.gate)],
      ]),
  ...(c.spec.correction ? [["c", c.at(c.correction)]] : []),
];
function pushed(c, x) {
  if (x > 0) return "The step makes this token more likely.";
  if (x < 0) return "The step makes this token less likely.";
  const because = c.A === 0 ? "its advantage is 0" : "its gate is 0";
  return (
    `The step does not push this token, because ` +
    `${c.taken ? because : "a filter took the answer out"}.`
  );
}

const leftOut = ({ who }) => ({
  math: "W = 0",
  say:
    `The recipe leaves ${who} out of the batch: every answer to its question got the same ` +
    `reward.`,
});

const samplerWeight = (c) => ({
  math:
    `c = ${digits(c.at(c.correction))}, from π_old/π_sampler = ` +
    `${digits(c.s.old[c.i][c.t])}/${digits(c.s.sampler[c.i][c.t])}`,
  say:
    "The policy that sampled the answers gave other probabilities (an older one, or another " +
    "engine); this factor makes up for it.",
});
const keptOr = (c, why) => ({
  math: `c = ${digits(c.at(c.correction))}`,
  say: `${c.at(c.correction) === 0 ? "The token is left out" : "The token stays"}: ${why}`,
});
const SELECTIONS = {
  high_entropy: (c) =>
    keptOr(
      c,
      `only the part ${number(c.spec.correction.part)} of the tokens with the highest ` +
        `entropy learn; this one has ${digits(c.s.entropy[c.i][c.t])}.`,
    ),
  off_policy_mask: (c) =>
    keptOr(
      c,
      "a bad answer that has become much less likely than it was is left out; good ones stay.",
    ),
  clip_cov: (c) =>
    keptOr(c, "the few tokens whose push would make the policy certain fastest get no gradient."),
};

const STEPS = {
  reward: (c) => (REWARD_STEPS[c.spec.baseline.name] ?? plainReward)(c),
  shaping: (c) => (SHAPING_STEPS[c.spec.rewards[0].name] ?? otherShaping)(c),
  baseline: (c) => (BASELINE_STEPS[c.spec.baseline.name] ?? groupMean)(c),
  centred: (c) => (CENTRED_STEPS[c.spec.baseline.name] ?? difference)(c),
  scale: (c) =>
    c.spec.baseline.name === "process_supervision"
      ? stepScale(c)
      : (SCALE_STEPS[c.spec.scale.name] ?? otherScale)(c),
  advantage: (c) => (ADVANTAGE_STEPS[c.spec.baseline.name] ?? scaledAdvantage)(c),
  ratio: (c) => (c.taken ? (RATIO_STEPS[c.spec.surrogate.name] ?? tokenRatio)(c) : leftOut(c)),
  gate: (c) => (c.taken ? (GATE_STEPS[c.spec.surrogate.name] ?? tokenGate)(c) : leftOut(c)),
  correction: (c) => (SELECTIONS[c.spec.correction.name] ?? samplerWeight)(c),
  W(c) {
    if (!c.taken) return leftOut(c);
    const [text, say] = (W_STEPS[c.spec.aggregation.name] ?? otherW)(c);
    return { math: `W = ${text ? `${text} = ` : ""}${digits(c.at(c.W))}`, say };
  },
  kl(c) {
    const pull = pullOf(c);
    const x = c.at(c.kl);
    const [what, policy] = {
      k2_old: ["token", "old"],
      k2_sequence: ["answer", "old"],
      kl_cov: ["token", "old"],
    }[c.spec.kl.name] ?? ["token", "reference"];
    const where = {
      1:
        `The ${what} is less likely than under the ${policy} policy: this term pushes it up, ` +
        "back to it.",
      "-1":
        `The ${what} is more likely than under the ${policy} policy: this term pushes it ` +
        "down, back to it.",
      0:
        `This term does nothing: the ${what} is as likely as under the ${policy} policy, or the ` +
        "term does not reach it.",
    };
    const numbers = pull ? `−${digits(c.at(c.W))} · ${number(c.spec.kl.beta)} · ${pull} = ` : "";
    return { math: `KL = ${numbers}${digits(x)}`, say: where[Math.sign(x)] };
  },
  push(c) {
    const factors = factorsOf(c);
    const kl = c.spec.kl ? ` + ${inKl(c.at(c.kl))}` : "";
    const x = c.at(c.push);
    return {
      math:
        `${factors.map(([name]) => name).join(" · ")}${c.spec.kl ? " + KL" : ""} = ` +
        `${factors.map(([, v]) => inKl(v)).join(" · ")}${kl} = ${digits(x)}`,
      say:
        `The push says how hard this training step pushes the probability of token ` +
        `${c.t + 1}: up where it is positive, down where it is negative. ${pushed(c, x)}`,
    };
  },
  share: (c) => ({
    math:
      c.total > 0
        ? `${digits(c.at(c.push))} / ${digits(c.total)} = ${percent(c.at(c.share))}`
        : "0",
    say:
      c.total > 0
        ? `The sizes of all pushes of the step add up to ${digits(c.total)}. The tokens of ` +
          `${c.who} have ${percent(tidy(sum(c.share[c.i])))} of it (minus: pushed down).`
        : "No token of this step is pushed.",
  }),
};
const inKl = (x) => (x < 0 ? `(${digits(x)})` : digits(x));

const NOT_HERE = {
  baseline: "This recipe compares the answer with nothing.",
  centred: "This recipe uses the reward as it is.",
  scale: "This recipe divides by nothing: the centred reward is the advantage.",
  shaping: "This recipe does not change the reward.",
  reward: "This recipe looks at no reward: its advantage comes from outside.",
  ratio: "This recipe has no ratio: its push does not look at how the probabilities moved.",
  gate: "This recipe has no clip: every token keeps its gradient.",
  kl: "This recipe has no KL term.",
  correction: "This recipe has no correction.",
};

// ---- the stage ----

const stagesOf = (s) =>
  ORDER.filter((key) => s.recipes.some((name) => s.specs[name].stages.some((x) => x.key === key)));
// The stage that is shown: the chosen one, or the next that these recipes have.
function stageOf(s) {
  const keys = stagesOf(s);
  const from = ORDER.indexOf(s.stage);
  return keys.find((key) => ORDER.indexOf(key) >= from) ?? keys[0];
}
const nameOf = (s, key) =>
  s.recipes.map((name) => s.specs[name].stages.find((x) => x.key === key)?.name).find(Boolean) ??
  key;
function moved(s, by) {
  const keys = stagesOf(s);
  const to = Math.min(Math.max(keys.indexOf(stageOf(s)) + by, 0), keys.length - 1);
  return { stage: keys[to] };
}

// ---- the picture ----

const reached = (stage, key) => ORDER.indexOf(stage) >= ORDER.indexOf(key);

/* What the colour of a token shows: the product of the factors so far, from the advantage on. */
function soFar(r, stage, i, t) {
  const factors = { ratio: r.ratio, gate: r.gate, correction: r.correction, W: r.W };
  const product = Object.entries(factors)
    .filter(([key]) => reached(stage, key))
    .reduce((x, [, value]) => x * value[i][t], reached(stage, "advantage") ? r.advantage[i][t] : 0);
  return tidy(product + (reached(stage, "kl") ? r.kl[i][t] : 0));
}

// The number that a token shows at a stage; nothing before the advantage.
function cellText(r, s, stage, i, t) {
  if (!reached(stage, "advantage") || !r[stage]) return "";
  const token = stage === "ratio" && ONE_S.includes(r.spec.surrogate.name);
  const x = tidy(token ? s.new[i][t] / s.old[i][t] : r[stage][i][t]);
  if (stage === "share") return percent(x).replace(" ", "");
  if (x !== 1 && Math.abs(x - 1) < 0.1) return x.toFixed(3).replace(/^0\./, ".");
  const size = Math.abs(x);
  const text =
    size > 0 && size < 0.001
      ? size.toExponential(0).replace("e-", "e−")
      : String(Number(size.toPrecision(2))).replace(/^0\./, ".");
  return (x < 0 ? "−" : "") + text;
}

const isCut = (r, i, t) => r.gate[i][t] === 0 && tidy(r.advantage[i][t]) !== 0;

// What has been found of one answer, in order; a value that is not reached is grey.
function facts(r, s, stage, i) {
  const has = (key) => r.spec.stages.some((x) => x.key === key);
  const one = (values) => (Array.isArray(values[i]) ? null : tidy(values[i]));
  const centred = one(r.centred);
  const plain =
    centred !== null &&
    !["decoupled_rewards", "pass_at_k", "live_group_mean"].includes(r.spec.baseline.name);
  const A = r.advantage[i][0];
  const divides = centred !== null && has("scale") && !r.spec.scale.name.endsWith("whiten");
  const scale = divides && tidy(A) !== 0 ? centred / A : null;
  const entries = [
    [
      "baseline",
      nameOf(s, "baseline"),
      has("baseline") && plain ? tidy(r.rewards[i] - centred) : null,
    ],
    ["centred", nameOf(s, "centred"), has("centred") ? centred : null],
    ["scale", nameOf(s, "scale"), scale],
    ["advantage", "A", r.advantage[i].every((a) => a === A) ? tidy(A) : null],
    ["ratio", "s", ONE_S.includes(r.spec.surrogate.name) ? r.ratio[i][0] : null],
    ["share", "share", sum(r.share[i])],
  ];
  return entries
    .filter(([, , value]) => value !== null)
    .map(([key, name, value]) => {
      const text = key === "share" ? percent(tidy(value)) : exact(value);
      const state = reached(stage, key) ? "reached" : "ahead";
      return (
        `<span class="fact ${key} ${key === stage ? "lit" : state}">${escaped(name)} ` +
        `${state === "ahead" ? "?" : `= ${text}`}</span>`
      );
    })
    .join(" ");
}

// Which tokens of an answer the clip has cut, and why.
function cutNote(r, s, stage, i) {
  if (!reached(stage, "gate")) return "";
  const cut = r.gate[i].flatMap((_, t) => (isCut(r, i, t) ? [t + 1] : []));
  if (cut.length === 0) return keptNote(r, s, i);
  const c = contextOf(r, { ...s, token: [i, cut[0] - 1] });
  if (ONE_S.includes(r.spec.surrogate.name) && r.spec.surrogate.name !== "gmpo") {
    const { relation } = sideOf(c.at(c.ratio), c.A, r.spec.surrogate);
    const because = `: s = ${digits(c.at(c.ratio))} ${relation}, ${signText(c.A)}`;
    return `whole answer cut<span class="because">${escaped(because)}</span>`;
  }
  return `cut: token ${and(cut)}`;
}

// Why an answer whose one ratio is outside the band is not cut; nothing where it is inside.
function keptNote(r, s, i) {
  const { name } = r.spec.surrogate;
  if (!ONE_S.includes(name) || name === "gmpo" || tidy(r.advantage[i][0]) === 0) return "";
  const c = contextOf(r, { ...s, token: [i, 0] });
  const { relation, inside } = sideOf(c.at(c.ratio), c.A, r.spec.surrogate);
  if (inside) return "";
  const way = c.A > 0 ? "rise" : "fall";
  const because = `: s = ${digits(c.at(c.ratio))} ${relation}, but ${signText(c.A)}`;
  return `not cut<span class="because">${escaped(because)}: only a ${way} is cut</span>`;
}

function strip(r, s, stage, largest) {
  const widest = Math.max(...s.old.map((row) => row.length));
  const cell = (i, t) => {
    const here = s.token[0] === i && s.token[1] === t;
    const x = soFar(r, stage, i, t);
    const cut = reached(stage, "gate") && isCut(r, i, t);
    const label =
      `${r.name}: answer ${i + 1}, token ${t + 1}: ` +
      `${cellText(r, s, stage, i, t) || "nothing yet"}${cut ? ", cut" : ""}`;
    const early = !reached(stage, "advantage");
    const classes = `cell${here ? " here" : ""}${cut ? " cut" : ""}${early ? " ahead" : ""}`;
    return (
      `<button type="button" tabindex="-1" class="${classes}" ` +
      `${attributes("cell", label, `${i},${t}`)}
      data-push="${r.push[i][t]}" style="background-color: ${colour(
        x,
        largest,
      )}"><span>${cellText(r, s, stage, i, t)}</span></button>`
    );
  };
  return s.old
    .map((row, i) => {
      const note = cutNote(r, s, stage, i);
      return (
        `<div class="answer" data-row="${i}"><div class="facts"><b>answer ${i + 1} · reward ` +
        `${exact(s.rewards[i])}</b>
      ${facts(r, s, stage, i)}${note ? `<span class="note">${note}</span>` : ""}</div>
      <div class="cells" style="--widest: ${widest}">${row
        .map((_, t) => cell(i, t))
        .join("")}</div></div>`
      );
    })
    .join("");
}

function stageText(r, s, stage) {
  const own = r.spec.stages.find((x) => x.key === stage);
  if (!own) return { formula: "", where: "", math: "", say: NOT_HERE[stage] };
  return { formula: own.formula, where: own.where, ...STEPS[stage](contextOf(r, s)) };
}

const CELL_WORDS = {
  advantage: "the advantage A",
  ratio: "the ratio",
  gate: "the gate g (0: no gradient)",
  correction: "the correction c",
  W: "the weight W",
  kl: "the KL term",
  push: "the push",
  share: "the share of the step",
};

// The parts of a panel that stay while its recipe stays; `fill` writes the others at each step.
function panel(r) {
  const head =
    `<h4>${escaped(r.spec.label)} <span class="soft">` + `${escaped(r.spec.title)}</span></h4>`;
  const body = r.error
    ? `<p class="message" role="alert">${escaped(r.error)}</p>`
    : `<div class="formulas"><div class="formula push">${r.spec.formula}</div>
    <div class="formula stage"></div></div><p class="soft where"></p><p class="numbers"></p>
    <p class="say"></p><p class="soft shows"></p><div class="strip"></div>`;
  return `<section data-recipe="${escaped(r.name)}">${head}${body}</section>`;
}

function fill(section, r, s, stage, largest) {
  const { formula, where, math, say } = stageText(r, s, stage);
  const shows = CELL_WORDS[stage]
    ? `Each box is a token. Its number is ${CELL_WORDS[stage]}; its colour is the push so far: ` +
      `orange up, purple down.`
    : "Each box is a token. It fills in from the advantage on.";
  const html = {
    ".formula.stage": stage === "push" ? "" : formula,
    ".where": where,
    ".numbers": escaped(math),
    ".say": escaped(say),
    ".shows": shows,
    ".strip": strip(r, s, stage, largest),
  };
  Object.entries(html).forEach(([part, text]) => {
    section.querySelector(part).innerHTML = text;
  });
  light(section, stage);
}

// Switches the factors of the push formula: lit, reached, or ahead.
function light(section, stage) {
  const now = BUILDS_A.includes(stage) ? "advantage" : stage;
  section.querySelectorAll(".formula.push .factor").forEach((node) => {
    const factor = FACTORS.find((name) => node.classList.contains(name));
    const state = reached(stage, factor) ? "reached" : "ahead";
    node.classList.remove("lit", "reached", "ahead");
    node.classList.add(factor === now ? "lit" : state);
  });
  section.querySelectorAll(".formula.stage .factor").forEach((node) => {
    node.classList.add("lit");
  });
}

function draw(root, s, results) {
  const stage = stageOf(s);
  const good = results.filter((r) => !r.error);
  const largest = Math.max(
    0,
    ...good.flatMap((r) =>
      r.push.flatMap((row, i) => row.map((_, t) => Math.abs(soFar(r, stage, i, t)))),
    ),
  );
  const picture = root.querySelector(".picture");
  const shape = JSON.stringify(results.map((r) => [r.name, r.error]));
  if (picture.dataset.shape !== shape || !picture.firstChild)
    picture.innerHTML = `<div class="panels" style="--count: ${results.length}">
      ${results.map(panel).join("")}</div>`;
  picture.dataset.shape = shape;
  picture.firstChild.classList.toggle("late", reached(stage, "advantage"));
  picture.firstChild.classList.toggle("two", results.length > 1);
  picture.querySelectorAll("section").forEach((section, k) => {
    if (!results[k].error) fill(section, results[k], s, stage, largest);
  });
  const keys = stagesOf(s);
  root.querySelectorAll('[data-key="stage"]').forEach((button) => {
    button.hidden = !keys.includes(button.dataset.index);
    const past = reached(stage, button.dataset.index) ? "reached" : "ahead";
    button.className = button.dataset.index === stage ? "lit" : past;
    button.toggleAttribute("aria-current", button.dataset.index === stage);
  });
  root.querySelector('[data-key="back"]').disabled = stage === keys[0];
  root.querySelector('[data-key="next"]').disabled = stage === keys[keys.length - 1];
  const asked = s.recipes.flatMap((name) => s.specs[name].needs);
  root.querySelectorAll("[data-need]").forEach((control) => {
    control.hidden = !asked.includes(control.dataset.need);
  });
  const told = good.map((r) => {
    const { math, say } = stageText(r, s, stage);
    return `${r.name}: ${math}. ${say}`;
  });
  root.querySelector(".spoken").textContent =
    `Step ${keys.indexOf(stage) + 1} of ${keys.length}, ${nameOf(s, stage)}. ${told.join(" ")}`;
  if (root.querySelector("details").open) drawTable(root, s, good);
}

function drawTable(root, s, good) {
  const head = ["recipe", "answer", "token", "A", "W", "ratio", "gate", "KL", "push", "share"];
  const lines = good.flatMap((r) =>
    s.old.flatMap((row, i) =>
      row.map((_, t) => [
        r.spec.label,
        i + 1,
        t + 1,
        ...[r.advantage, r.W, r.ratio, r.gate, r.kl].map((x) => digits(tidy(x[i][t]))),
        signed(tidy(r.push[i][t])),
        percent(tidy(r.share[i][t])),
      ]),
    ),
  );
  root.querySelector(".table").innerHTML = tableOf(head, lines);
}

// ---- the controls ----

const stageButton = (key) =>
  `<button type="button" ${attributes("stage", `stage ${key}`, key)}></button>`;
const controls = (state) =>
  `<div class="choices">${bar(
    chooser("recipes", "recipe", state.specs, RECIPES),
    presetChoice(state),
    field("count", "answers", `min="1" max="${MANY}" step="1"`),
    field("max_new_tokens", "C = max_new_tokens", 'min="1" step="1"'),
  )}</div>
  <div class="steps"><button type="button" ${attributes("back", "one step back")}></button>
  <div class="stages" role="group"
    aria-label="stages">${ORDER.map(stageButton).join("")}</div>
  <button type="button" ${attributes("next", "one step forward")}></button></div>
  <p class="spoken" aria-live="polite"></p>`;

const numberOf = (key, text, label, i, more, asked) =>
  `<label${asked ? ` data-need="${asked}"` : ""}>${text}<input type="number" ` +
  `${attributes(key, label, i)} ${more}></label>`;
const PROBABILITY = 'min="0.01" max="1" step="0.01"';
const tokenRow =
  `<p class="soft">Click a token to choose it. Drag it up or down to change its ` +
  `new probability.</p><div class="bar editor"><b>one token</b>
  ${numberOf("row", "answer", "answer of the token", undefined, 'min="1" step="1"')}
  ${numberOf("place", "token", "place of the token", undefined, 'min="1" step="1"')}
  ${numberOf("old", "old probability", "old probability of the token", undefined, PROBABILITY)}
  ${numberOf("new", "new probability", "new probability of the token", undefined, PROBABILITY)}
  <input type="range" ${attributes("slide", "new probability of the token, by slider")}
    ${PROBABILITY}><output></output>
  ${numberOf(
    "ref",
    "reference probability",
    "reference probability of the token",
    undefined,
    PROBABILITY,
    "ref",
  )}
  ${numberOf(
    "sampler",
    "sampler's probability",
    "sampler's probability of the token",
    undefined,
    PROBABILITY,
    "sampler",
  )}
  ${numberOf(
    "entropy",
    "entropy (nats)",
    "entropy of the policy at the token",
    undefined,
    'min="0" step="0.1"',
    "entropy",
  )}
  ${numberOf(
    "value",
    "value before it",
    "value before the token",
    undefined,
    'step="0.05"',
    "value",
  )}
  ${numberOf("given", "advantage", "advantage of the token", undefined, 'step="0.1"', "given")}
  ${numberOf(
    "step_rewards",
    "step reward (empty: no step ends)",
    "step reward of the token",
    undefined,
    'step="0.1"',
    "step_rewards",
  )}</div>`;
const answerRow = (i) => `<div class="bar editor"><b>answer ${i + 1}</b>
  ${numberOf("rewards", "reward", `reward of answer ${i + 1}`, i, 'step="0.5"')}
  ${numberOf(
    "lengths",
    "tokens",
    `tokens of answer ${i + 1}`,
    i,
    `min="1" max="${LONGEST}" step="1"`,
  )}
  ${numberOf("group", "question", `question of answer ${i + 1}`, i, 'min="1" step="1"')}
  ${numberOf(
    "greedy",
    "greedy reward",
    `greedy reward for answer ${i + 1}`,
    i,
    'step="0.5"',
    "greedy",
  )}
  ${[0, 1]
    .map((k) =>
      numberOf(
        `part${k}`,
        `reward ${k + 1}`,
        `reward ${k + 1} of answer ${i + 1}`,
        i,
        'step="0.5"',
        "parts",
      ),
    )
    .join("")}</div>`;

function shown(key, s, i) {
  const [row, place] = s.token;
  if (key === "stage") return { value: nameOf(s, i), label: `stage ${nameOf(s, i)}` };
  if (key === "back") return { value: "◀ back" };
  if (key === "next") return { value: "next ▶" };
  if (key === "cell") return { value: "" };
  if (key === "recipes") return { value: s.recipes[i] ?? "none" };
  if (key === "count") return { value: s.rewards.length };
  if (key === "row") return { value: row + 1, max: s.old.length };
  if (key === "place") return { value: place + 1, max: s.old[row]?.length };
  if (key === "slide")
    return { value: s.new[row]?.[place], text: digits(s.new[row]?.[place] ?? 0) };
  if (key in PER_TOKEN) return { value: s[key][row]?.[place] };
  if (key === "lengths") return { value: s.old[i].length };
  if (key === "group") return { value: s.group[i] + 1 };
  if (key.startsWith("part")) return { value: s.parts[i][key[4]] };
  return { value: i === undefined ? s[key] : s[key][i] };
}

// Every trait per token with other lengths; new tokens get plain values.
const resized = (s, lengths) => ({
  ...Object.fromEntries(
    Object.entries(PER_TOKEN).map(([key, plain]) => [
      key,
      lengths.map((n, i) => Array.from({ length: n }, (_, t) => (s[key][i] ?? [])[t] ?? plain)),
    ]),
  ),
  token: [
    Math.min(s.token[0], lengths.length - 1),
    Math.min(s.token[1], lengths[Math.min(s.token[0], lengths.length - 1)] - 1),
  ],
});
const withToken = (s, key, x) => ({
  [key]: replaced(s[key], s.token[0], replaced(s[key][s.token[0]], s.token[1], x)),
});
const probability = (key, name) => (input, s) =>
  withToken(s, key, parse(input, name, { min: 1e-6, max: 1 }));
const perToken = (key, name, blank) => (input, s) =>
  withToken(s, key, parse(input, name, { min: -Infinity, blank }));
const perAnswer = (key, name) => (input, s, i) => ({
  [key]: replaced(
    s[key],
    i,
    parse(input, `${name} of answer ${Number(i) + 1}`, { min: -Infinity }),
  ),
});
const lengthsOf = (s) => s.old.map((row) => row.length);

function withCount(s, n) {
  const filled = (values, plain) => Array.from({ length: n }, (_, i) => values[i] ?? plain);
  return {
    rewards: filled(s.rewards, 0),
    group: filled(s.group, s.group[s.group.length - 1]),
    greedy: filled(s.greedy, 0),
    parts: filled(s.parts, [0, 0]),
    ...resized(s, filled(lengthsOf(s), 4)),
  };
}

const changes = {
  recipes: chosen("recipes", RECIPES),
  preset: (input, s) => ({ token: [0, 0], ...presetState(input, s) }),
  count: (input, s) => withCount(s, parse(input, "answers", { min: 1, max: MANY, whole: true })),
  max_new_tokens: (input) => ({ max_new_tokens: parse(input, "C", { min: 1, whole: true }) }),
  back: (_, s) => moved(s, -1),
  next: (_, s) => moved(s, 1),
  stage: (_, _s, key) => ({ stage: key }),
  cell: (_, _s, at) => ({ token: at.split(",").map(Number) }),
  row: (input, s) => ({
    token: [parse(input, "answer", { min: 1, max: s.old.length, whole: true }) - 1, 0],
  }),
  place: (input, s) => ({
    token: [
      s.token[0],
      parse(input, "token", { min: 1, max: s.old[s.token[0]].length, whole: true }) - 1,
    ],
  }),
  slide: (input, s) => withToken(s, "new", Number(input.value)),
  old: probability("old", "old probability"),
  new: probability("new", "new probability"),
  ref: probability("ref", "reference probability"),
  sampler: probability("sampler", "sampler's probability"),
  entropy: perToken("entropy", "entropy"),
  value: perToken("value", "value"),
  given: perToken("given", "advantage"),
  step_rewards: perToken("step_rewards", "step reward", true),
  rewards: perAnswer("rewards", "reward"),
  greedy: perAnswer("greedy", "greedy reward"),
  group: (input, s, i) => ({
    group: replaced(s.group, i, parse(input, "question", { min: 1, whole: true }) - 1),
  }),
  lengths: (input, s, i) =>
    resized(
      s,
      replaced(lengthsOf(s), i, parse(input, "tokens", { min: 1, max: LONGEST, whole: true })),
    ),
  part0: (input, s, i) => ({
    parts: replaced(
      s.parts,
      i,
      replaced(s.parts[i], 0, parse(input, "reward 1", { min: -Infinity })),
    ),
  }),
  part1: (input, s, i) => ({
    parts: replaced(
      s.parts,
      i,
      replaced(s.parts[i], 1, parse(input, "reward 2", { min: -Infinity })),
    ),
  }),
};

const keys = [
  ...FRAME,
  "specs",
  "recipes",
  "stage",
  "token",
  "max_new_tokens",
  "rewards",
  "group",
  "greedy",
  "parts",
  ...Object.keys(PER_TOKEN),
];
// A batch that is changed is no preset any more.
const BATCH = ["rewards", "group", "greedy", "parts", ...Object.keys(PER_TOKEN)];
const freed = (changed) =>
  "preset" in changed || !BATCH.some((name) => name in changed)
    ? changed
    : { ...changed, preset: "" };
const freeing = Object.fromEntries(
  Object.entries(changes).map(([key, change]) => [key, (...given) => freed(change(...given))]),
);
const view = explorer({
  keys,
  controls,
  rows: (s) => [tokenRow, ...s.rewards.map((_, i) => answerRow(i))],
  shown,
  changes: freeing,
  answer,
  draw,
});

const KEYS = { ArrowRight: 1, ArrowLeft: -1, Home: -ORDER.length, End: ORDER.length };
const stateOf = (model) => Object.fromEntries(keys.map((name) => [name, model.get(name)]));
function put(model, changed) {
  Object.entries(changed).forEach(([name, value]) => model.set(name, value));
  model.save_changes();
}

// A token dragged up or down changes its new probability.
function dragging(root, model) {
  let from = null;
  const down = (event) => {
    const at = event.target.closest(".cell")?.dataset.index?.split(",").map(Number);
    if (!at || event.pointerType === "touch") return;
    from = { at, y: event.clientY, p: model.get("new")[at[0]][at[1]] };
  };
  const move = (event) => {
    if (from === null || Math.abs(event.clientY - from.y) < 4) return;
    const p = Math.min(1, Math.max(0.01, from.p + (from.y - event.clientY) / 200));
    const s = { ...stateOf(model), token: from.at };
    put(model, freed({ token: from.at, ...withToken(s, "new", Number(p.toFixed(2))) }));
  };
  const up = () => {
    from = null;
  };
  const heard = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
  root.addEventListener("pointerdown", down);
  ["pointermove", "pointerup", "pointercancel"].forEach((name) => {
    document.addEventListener(name, heard[name]);
  });
  return () =>
    ["pointermove", "pointerup", "pointercancel"].forEach((name) => {
      document.removeEventListener(name, heard[name]);
    });
}

function render({ model, el }) {
  const stop = view({ model, el });
  const root = el.lastElementChild;
  const picture = root.querySelector(".picture");
  root.classList.add("stepper");
  picture.tabIndex = 0;
  picture.dataset.lmSuppressShortcuts = "true";
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", "formula and tokens; the arrow keys step");
  picture.after(root.querySelector(".rows"));
  root.querySelector("details").addEventListener("toggle", () => {
    const s = stateOf(model);
    drawTable(
      root,
      s,
      answer(s).filter((r) => !r.error),
    );
  });
  const press = (event) => {
    if (!(event.key in KEYS) || event.target.closest?.("input, select, summary")) return;
    event.preventDefault();
    event.stopPropagation();
    put(model, moved(stateOf(model), KEYS[event.key]));
  };
  const page = el.id === "app"; // a saved page listens everywhere
  const ears = page ? document : root;
  ears.addEventListener("keydown", press);
  const release = dragging(root, model);
  return () => {
    ears.removeEventListener("keydown", press);
    release();
    stop();
  };
}

export default { render };
