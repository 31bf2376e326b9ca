// The mathematics of grpo_edu/objective in JavaScript: each word of a recipe's spec is one function, under the name it has there.
// Pure, no browser needed; tests/test_explorers.py holds it to the library within 1e-12.

const sum = (xs) => xs.reduce((a, b) => a + b, 0);
const mean = (xs) => sum(xs) / xs.length;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const need = (ok, name, found, expected) => {
  if (!ok) throw new Error(`${name} is ${found}: expected ${expected}.`);
};

function word(table, axis, choice) {
  if (!Object.hasOwn(table, choice.name))
    throw new Error(`the explorer does not draw the ${axis} '${choice.name}'.`);
  return table[choice.name];
}

// Values that differ by rounding at most are equal: no signal.
function isDead(values) {
  const high = Math.max(...values);
  const low = Math.min(...values);
  return !(high - low > 8 * Number.EPSILON * Math.max(Math.abs(high), Math.abs(low)));
}

function spreadOf(values, ddof) {
  if (isDead(values)) return 0;
  const middle = mean(values);
  return Math.sqrt(sum(values.map((x) => (x - middle) ** 2)) / Math.max(1, values.length - ddof));
}

/* One optimiser step: rewards, lengths and prompt numbers, N each, and `greedy`, the reward of the greedy completion. `tokens` are the
   lengths after the filters, 0 where a completion left; `members` are the rows of each prompt. */
function batchOf({ rewards, lengths, group, greedy = 0, filters = [] }) {
  const rows = rewards.map((_, i) => i);
  const members = new Map();
  rows.forEach((i) => members.set(group[i], [...(members.get(group[i]) ?? []), i]));
  const batch = { rows, rewards, lengths, group, greedy, members };
  const stays = filters.map((filter) => word(FILTERS, "filter", filter)(batch));
  batch.present = rows.map((i) => stays.every((stay) => stay[i]));
  batch.tokens = rows.map((i) => (batch.present[i] ? lengths[i] : 0));
  return batch;
}

// A number per row that only its prompt decides, worked out once per prompt: f(values of the prompt, its rows).
function perPrompt({ rows, members, group }, values, f) {
  const known = new Map(
    [...members].map(([q, peers]) => [
      q,
      f(
        peers.map((i) => values[i]),
        peers,
      ),
    ]),
  );
  return rows.map((i) => known.get(group[i]));
}

const FILTERS = { drop_dead_groups: (batch) => perPrompt(batch, batch.rewards, (r) => !isDead(r)) };

function needPeers(batch) {
  if ([...batch.members.values()].some((peers) => peers.length < 2)) {
    throw new Error(
      "group size 1: no relative signal. This recipe compares completions of one prompt, " +
        "but a prompt has a single one. Give it at least 2, or choose reinforce.",
    );
  }
}

function centredBy(batch, middle) {
  needPeers(batch);
  const means = perPrompt(batch, batch.rewards, middle);
  const dead = perPrompt(batch, batch.rewards, isDead);
  return batch.rows.map((i) => (dead[i] ? 0 : batch.rewards[i] - means[i]));
}

// (batch, settings) -> centred advantage of each completion
const BASELINES = {
  no_baseline: (batch) => batch.rewards,
  greedy: (batch) => batch.rewards.map((r) => r - batch.greedy),
  group_mean: (batch) => centredBy(batch, mean),
  leave_one_out(batch) {
    const size = perPrompt(batch, batch.rewards, (r) => r.length);
    return centredBy(batch, mean).map((a, i) => (a * size[i]) / (size[i] - 1));
  },
  length_weighted_mean: (batch) =>
    centredBy(batch, (r, peers) => {
      const tokens = peers.map((i) => batch.tokens[i]);
      return sum(tokens) > 0 ? sum(tokens.map((n, j) => n * r[j])) / sum(tokens) : mean(r);
    }),
  live_group_mean(batch) {
    const live = sum(perPrompt(batch, batch.rewards, (r) => (isDead(r) ? 0 : 1)));
    return centredBy(batch, mean).map((a) => (a * batch.rows.length) / Math.max(1, live));
  },
  pass_at_k(batch, { k }) {
    const smallest = Math.min(...[...batch.members.values()].map((peers) => peers.length));
    need(k <= smallest, "k", k, `at most ${smallest}, the completions of a prompt`);
    const wrong = perPrompt(batch, batch.rewards, (r) => {
      const others = r.length - 1;
      const c = r.filter((x) => x > 0).length;
      let chance = 1; // that k - 1 of the others hold no right one
      for (let j = 0; j < k - 1; j++) chance *= Math.max(0, others - c - j) / (others - j);
      return k * (1 - chance);
    });
    return batch.rewards.map((r, i) => (r > 0 ? k : wrong[i]));
  },
};

const divided = (advantage, spread, eps) => (spread > 0 ? advantage / (spread + eps) : 0);

function leaveOneOutSpread(rewards, ddof) {
  const middle = mean(rewards);
  const x = rewards.map((r) => r - middle);
  const others = rewards.length - 1;
  const first = sum(x);
  const second = sum(x.map((y) => y * y));
  const rounding = (8 * Number.EPSILON * Math.max(...rewards.map(Math.abs))) ** 2;
  return x.map((y) => {
    const squares = second - y * y - (first - y) ** 2 / Math.max(1, others);
    const variance =
      squares > 64 * Number.EPSILON * second ? squares / Math.max(1, others - ddof) : 0; // else all of it cancelled
    return variance > rounding ? Math.sqrt(variance) : 0;
  });
}

// (centred advantages, batch, settings) -> scaled advantages
const SCALES = {
  unscaled: (advantage) => advantage,
  group_std(advantage, batch, { ddof, eps }) {
    const spread = perPrompt(batch, batch.rewards, (r) => spreadOf(r, ddof));
    return advantage.map((a, i) => divided(a, spread[i], eps));
  },
  batch_std(advantage, batch, { ddof, eps }) {
    const spread = spreadOf(batch.rewards, ddof);
    return advantage.map((a) => divided(a, spread, eps));
  },
  leave_one_out_std(advantage, batch, { ddof, eps }) {
    const spread = perPrompt(
      batch,
      batch.rewards,
      (r, peers) => new Map(leaveOneOutSpread(r, ddof).map((s, j) => [peers[j], s])),
    );
    return advantage.map((a, i) => divided(a, spread[i].get(i) || 1 - eps, eps));
  },
  group_mean_scale(advantage, batch) {
    const middle = perPrompt(batch, batch.rewards, mean);
    return advantage.map((a, i) => divided(a, middle[i], 0));
  },
  token_whiten(advantage, { tokens, rows }, { ddof, eps }) {
    const total = sum(tokens);
    const middle = sum(rows.map((i) => tokens[i] * advantage[i])) / Math.max(1, total);
    const kept = advantage.filter((_, i) => tokens[i] > 0);
    const squares = sum(rows.map((i) => tokens[i] * (advantage[i] - middle) ** 2));
    const spread =
      kept.length === 0 || isDead(kept) ? 0 : Math.sqrt(squares / Math.max(1, total - ddof));
    return advantage.map((a) => divided(a - middle, spread, eps));
  },
};

function advantagesOf(spec, batch) {
  const centred = word(BASELINES, "baseline", spec.baseline)(batch, spec.baseline);
  return word(SCALES, "scale", spec.scale)(centred, batch, spec.scale);
}

function clipped(ratio, advantage, { eps_low, eps_high }) {
  const cut = (advantage > 0 && ratio > 1 + eps_high) || (advantage < 0 && ratio < 1 - eps_low);
  return { ratio, gate: cut ? 0 : 1 };
}

/* (ratio, advantage, settings) -> ratio and gate: the slope by log π, divided by the advantage. All tokens of a completion share one
   ratio here, so it is its own geometric mean. */
const SURROGATES = {
  reinforce: () => ({ ratio: 1, gate: 1 }),
  ppo_clip: clipped,
  gspo: clipped,
  gspo_token: clipped,
  dual_clip(ratio, advantage, settings) {
    const inner = clipped(ratio, advantage, settings);
    return advantage < 0 && ratio > settings.cap ? { ratio, gate: 0 } : inner;
  },
  cispo: (ratio, _, { low, high }) => ({ ratio, gate: clamp(ratio, low, high) / ratio }),
  sapo(ratio, advantage, { tau_pos, tau_neg }) {
    const soft = 1 / (1 + Math.exp(-(advantage > 0 ? tau_pos : tau_neg) * (ratio - 1)));
    return { ratio, gate: 4 * soft * (1 - soft) };
  },
  gmpo(ratio, advantage, { eps_low, eps_high }) {
    const up = advantage > 0;
    const low = Math.exp(-eps_low);
    const high = Math.exp(eps_high);
    return {
      ratio: up ? Math.min(ratio, high) : Math.max(ratio, low),
      gate: (up ? ratio > high : ratio < low) ? 0 : 1,
    };
  },
};

/* (ratio, advantage, settings) -> the objective, as a function of the ratio. Where the loss detaches the ratio or has none (cispo,
   reinforce) its value says nothing: here stands the function whose slope by log π is the gradient, A at ratio 1. */
const clip = (ratio, A, { eps_low, eps_high }) =>
  Math.min(ratio * A, clamp(ratio, 1 - eps_low, 1 + eps_high) * A);
const OBJECTIVES = {
  reinforce: (ratio, A) => A * (1 + Math.log(ratio)),
  ppo_clip: clip,
  dual_clip: (ratio, A, settings) =>
    A < 0 ? Math.max(clip(ratio, A, settings), settings.cap * A) : clip(ratio, A, settings),
  cispo(ratio, A, { low, high }) {
    const cut = clamp(ratio, low, high);
    return A * (cut > 0 ? cut * (1 + Math.log(ratio / cut)) : 0);
  },
  sapo(ratio, A, { tau_pos, tau_neg }) {
    const tau = A > 0 ? tau_pos : tau_neg;
    return ((4 / tau) * A) / (1 + Math.exp(-tau * (ratio - 1)));
  },
  gmpo: (ratio, A, settings) => A * SURROGATES.gmpo(ratio, A, settings).ratio,
};

// (batch, settings) -> W of each token of each completion; `limit` is C, `micro` the micro-batch of each row
const count = (flags) => flags.filter(Boolean).length;
const AGGREGATIONS = {
  sequence_mean: ({ rows, tokens, present }) => rows.map((i) => 1 / tokens[i] / count(present)),
  sequence_sum: ({ rows, present }) => rows.map(() => 1 / count(present)),
  step_token_mean: ({ rows, tokens }) => rows.map(() => 1 / sum(tokens)),
  prompt_token_mean(batch) {
    const live = new Set(batch.group.filter((_, i) => batch.present[i])).size;
    return perPrompt(batch, batch.tokens, (tokens) => 1 / sum(tokens) / live);
  },
  micro_batch_token_mean: ({ rows, tokens, micro }) =>
    rows.map((i) => 1 / sum(tokens.filter((_, j) => micro[j] === micro[i])) / new Set(micro).size),
  constant: ({ rows, present, limit }, { length }) =>
    rows.map(() => 1 / count(present) / (length ?? limit)),
  constant_sum: ({ rows, limit }, { length }) => rows.map(() => 1 / (length ?? limit)),
  length_power(batch, { alpha, length }) {
    const power = batch.tokens.map((n) => (n > 0 ? n ** -alpha : 0));
    const average = perPrompt(
      batch,
      power,
      (x) => sum(x) / Math.max(1, x.filter((y) => y > 0).length),
    );
    return power.map(
      (x, i) =>
        x / (average[i] > 0 ? average[i] : 1) / count(batch.present) / (length ?? batch.limit),
    );
  },
  balanced(batch) {
    const { rows, tokens, advantage, present, group } = batch;
    const prompts = new Set(group.filter((_, i) => present[i])).size;
    const same = (i) =>
      rows.filter(
        (j) => group[j] === group[i] && Math.sign(advantage[j]) === Math.sign(advantage[i]),
      );
    const size = (some) => count(some.map((j) => present[j]));
    const share = (i) =>
      size(same(i)) /
      Math.max(1, size(batch.members.get(group[i]))) /
      Math.max(1, sum(same(i).map((j) => tokens[j])));
    return rows.map((i) => share(i) / Math.max(1, prompts));
  },
};

// ddof, eps and k of the controls in place of a choice's own, where it has them.
function turned(spec, { ddof, eps, k }) {
  const set = (choice) => ({
    ...choice,
    ...Object.fromEntries(Object.entries({ ddof, eps, k }).filter(([name]) => name in choice)),
  });
  return { ...spec, baseline: set(spec.baseline), scale: set(spec.scale) };
}

export {
  AGGREGATIONS,
  OBJECTIVES,
  SURROGATES,
  advantagesOf,
  batchOf,
  clamp,
  clipped,
  count,
  isDead,
  need,
  perPrompt,
  sum,
  turned,
  word,
};
