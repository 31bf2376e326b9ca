// The mathematics of grpo_edu/objective in JavaScript: each choice of a recipe's spec is one
// function, under the name that it has there.
// Pure, no browser needed; tests/test_explorers.py holds it to the library within 1e-12.

const sum = (xs) => xs.reduce((a, b) => a + b, 0);
const mean = (xs) => sum(xs) / xs.length;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const need = (ok, name, found, expected) => {
  if (!ok) throw new Error(`${name} is ${found}: expected ${expected}.`);
};

function lookup(table, axis, choice) {
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

/* One optimiser step. Of each completion [i]: `rewards`, `lengths` (1 or more tokens), `group`
   (its prompt), and, where a recipe asks for them, `greedy` (reward of the prompt's greedy
   completion), `parts` (one reward per function, null: does not apply), `given` (an advantage),
   `micro` (its micro-batch). Of each token [i][t]: `logRatio` (log π/π_old, absent: 0), `logRef`
   (log π/π_ref, absent: no KL term), `logSampler` (log π_old/π_sampler), `tokenReward` (null:
   none), `value`, `logOld` (log π_old) and `entropy`; a `given` advantage may stand here too.
   `limit` is C; `rawRewards` are those before any shaping. The filters decide
   `present` (is the row in the batch) and `tokens` (its length, 0 where it left); `members` are
   the rows of each prompt. */
function batchOf({ filters = [], ...fields }) {
  const { rewards, lengths, group } = fields;
  const rows = rewards.map((_, i) => i);
  const members = new Map();
  rows.forEach((i) => members.set(group[i], [...(members.get(group[i]) ?? []), i]));
  const batch = { ...fields, rows, members };
  const stays = filters.map((filter) => lookup(FILTERS, "filter", filter)(batch));
  batch.present = rows.map((i) => stays.every((stay) => stay[i]));
  batch.tokens = rows.map((i) => (batch.present[i] ? lengths[i] : 0));
  return batch;
}

// What a batch must have for a choice.
function needed(batch, name) {
  if (batch[name] === undefined) throw new Error(`this recipe needs ${name}, which is missing.`);
  return batch[name];
}

// A number per row that only its prompt decides, worked out once per prompt:
// f(values of the prompt, its rows).
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

const isLive = (rewards) => !isDead(rewards);
const FILTERS = {
  drop_dead_groups: (batch) => perPrompt(batch, batch.rewards, isLive),
  drop_raw_dead_groups: (batch) => perPrompt(batch, batch.rawRewards, isLive),
};

function needPeers(batch) {
  if ([...batch.members.values()].some((peers) => peers.length < 2)) {
    throw new Error(
      "group size 1: no relative signal. This recipe compares completions of one prompt, " +
        "but a prompt has a single one. Give it at least 2, or choose reinforce.",
    );
  }
}

function needForK(batch, k) {
  const smallest = Math.min(...[...batch.members.values()].map((peers) => peers.length));
  need(k <= smallest, "k", k, `at most ${smallest}, the completions of a prompt`);
}

// C(wrong, k) / C(all, k): the chance that k of all hold no right one.
function chanceOfNone(wrong, all, k) {
  let chance = 1;
  for (let j = 0; j < k; j++) chance *= Math.max(0, wrong - j) / (all - j);
  return chance;
}

function centredBy(batch, middle) {
  needPeers(batch);
  const means = perPrompt(batch, batch.rewards, middle);
  const dead = perPrompt(batch, batch.rewards, isDead);
  return batch.rows.map((i) => (dead[i] ? 0 : batch.rewards[i] - means[i]));
}

const k1 = ({ logRef, logRatio }, i, t) => logRef[i][t] - (logRatio?.[i][t] ?? 0);

// (batch, settings) -> the fields that shaping changes
const REWARDS = {
  overlong_penalty: ({ rewards, lengths, limit }, { cache }) => ({
    rewards: rewards.map((r, i) => r - clamp((lengths[i] - (limit - cache)) / cache, 0, 1)),
  }),
  kl_in_reward: (batch, { beta }) =>
    batch.logRef && {
      rewards: batch.rewards.map(
        (r, i) => r - beta * sum(batch.logRef[i].map((_, t) => k1(batch, i, t))),
      ),
    },
  kl_in_token_reward: (batch, { beta }) =>
    batch.logRef && {
      tokenReward: batch.logRef.map((row, i) =>
        row.map((_, t) => (batch.tokenReward?.[i][t] ?? 0) - beta * k1(batch, i, t)),
      ),
    },
};

// What is rewarded at each token: the completion's reward stands at its last one.
const rewardsPerToken = ({ rows, tokens, rewards, tokenReward }) =>
  rows.map((i) =>
    Array.from(
      { length: tokens[i] },
      (_, t) => (tokenReward?.[i][t] ?? 0) + (t === tokens[i] - 1 ? rewards[i] : 0),
    ),
  );

function advantageToGo(batch, values, gamma, lamOf) {
  return rewardsPerToken(batch).map((rewards, i) => {
    const lam = lamOf(rewards.length);
    const advantage = Array(rewards.length);
    let next = 0;
    let ahead = 0;
    for (let t = rewards.length - 1; t >= 0; t--) {
      next = rewards[t] + gamma * ahead - values[i][t] + gamma * lam * next;
      ahead = values[i][t];
      advantage[t] = next;
    }
    return advantage;
  });
}

// Z-scores of one reward function inside each prompt; 0 where it does not apply.
function normalisedPart(batch, part, { ddof, eps }) {
  const applies = (x) => x !== null;
  const middle = perPrompt(batch, part, (r) => mean(r.filter(applies)));
  const spread = perPrompt(batch, part, (r) => spreadOf(r.filter(applies), ddof));
  return part.map((x, i) => (applies(x) ? divided(x - middle[i], spread[i], eps) : 0));
}

// (batch, settings) -> centred advantage of each completion, or of each of its tokens
const BASELINES = {
  no_baseline: (batch) => batch.rewards,
  given: (batch) => needed(batch, "given"),
  greedy: (batch) => batch.rewards.map((r, i) => r - needed(batch, "greedy")[i]),
  gae: (batch, { gamma, lam }) => advantageToGo(batch, needed(batch, "value"), gamma, () => lam),
  length_adaptive_gae: (batch, { gamma, alpha }) =>
    advantageToGo(
      batch,
      needed(batch, "value"),
      gamma,
      (length) => 1 - 1 / Math.max(1, alpha * length),
    ),
  return_to_go: (batch, { gamma }) =>
    advantageToGo(
      batch,
      batch.lengths.map((n) => Array(n).fill(0)),
      gamma,
      () => 1,
    ),
  process_supervision(batch, { ddof, eps }) {
    const steps = needed(batch, "tokenReward").map((row, i) => row.slice(0, batch.tokens[i]));
    const pool = perPrompt(batch, steps, (rows) => rows.flat().filter((r) => r !== null));
    return steps.map((row, i) => {
      const middle = mean(pool[i]);
      const spread = spreadOf(pool[i], ddof);
      const score = (r) => (r === null ? 0 : divided(r - middle, spread, eps));
      return row.map((_, t) => row.slice(t).reduceRight((later, r) => later + score(r), 0));
    });
  },
  decoupled_rewards(batch, settings) {
    needPeers(batch);
    const parts = needed(batch, "parts");
    const scores = parts[0].map((_, k) =>
      normalisedPart(
        batch,
        parts.map((row) => row[k]),
        settings,
      ),
    );
    return batch.rows.map((i) => sum(scores.map((z, k) => (settings.weights?.[k] ?? 1) * z[i])));
  },
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
  right_and_wrong: (batch, { positive }) => batch.rewards.map((r) => (r > 0 ? positive : -1)),
  teacher_log_ratio: (batch) =>
    needed(batch, "logRef").map((row, i) => row.map((_, t) => -k1(batch, i, t))),
  pass_at_k_training(batch, { k }) {
    needForK(batch, k);
    const advantage = perPrompt(batch, batch.rewards, (r) => {
      const wrong = r.filter((x) => x <= 0).length;
      const fail = chanceOfNone(wrong, r.length, k);
      const spread = Math.sqrt(fail * (1 - fail));
      const without = chanceOfNone(wrong - 1, r.length - 1, k - 1);
      return spread > 0 ? [fail / spread, (fail - without) / spread] : [0, 0];
    });
    return batch.rewards.map((r, i) => advantage[i][r > 0 ? 0 : 1]);
  },
  pass_at_k(batch, { k }) {
    needForK(batch, k);
    const wrong = perPrompt(batch, batch.rewards, (r) => {
      const others = r.length - 1;
      const c = r.filter((x) => x > 0).length;
      return k * (1 - chanceOfNone(others - c, others, k - 1));
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
    // where the squares are no more than rounding, all of them cancelled
    const variance =
      squares > 64 * Number.EPSILON * second ? squares / Math.max(1, others - ddof) : 0;
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
  batch_whiten(advantage, _, { ddof, eps }) {
    const middle = mean(advantage);
    const spread = spreadOf(advantage, ddof);
    return advantage.map((a) => divided(a - middle, spread, eps));
  },
  token_whiten(advantage, { tokens, rows }, { ddof, eps }) {
    const laid = rows.flatMap((i) => onTokens(advantage[i], tokens[i]));
    const middle = laid.length > 0 ? mean(laid) : 0;
    const spread = spreadOf(laid, ddof);
    const score = (a) => divided(a - middle, spread, eps);
    return advantage.map((a) => (Array.isArray(a) ? a.map(score) : score(a)));
  },
};

// A number of a completion, or one of each token, on its first n tokens.
const onTokens = (value, n) => (Array.isArray(value) ? value.slice(0, n) : Array(n).fill(value));

function advantagesOf(spec, batch) {
  const centred = lookup(BASELINES, "baseline", spec.baseline)(batch, spec.baseline);
  return lookup(SCALES, "scale", spec.scale)(centred, batch, spec.scale);
}

// Log-ratios are limited to ±20. A ratio has 15 digits, so that one that misses its bound by
// rounding is on it.
const LIMIT = 20;
const ratioOf = (log) => Number(Math.exp(clamp(log, -LIMIT, LIMIT)).toPrecision(15));
const within = (log) => (Math.abs(log) <= LIMIT ? 1 : 0);
const clips = (ratio, A, { eps_low, eps_high }) =>
  (A > 0 && ratio > 1 + eps_high) || (A < 0 && ratio < 1 - eps_low);

// Factors of a surrogate that looks at each token alone: gate(ratio, A, log-ratio).
const tokenwise = (logs, A, gate) => {
  const ratio = logs.map(ratioOf);
  return { ratio, gate: ratio.map((r, t) => gate(r, A[t], logs[t])) };
};

// Factors of a surrogate with one ratio for a completion.
const together = (logs, A, log, gate) => {
  const ratio = ratioOf(log);
  return {
    ratio: logs.map(() => ratio),
    gate: logs.map((_, t) => within(log) * gate(ratio, A[t], t)),
  };
};

function geometric(logs, A, settings) {
  const log = mean(logs);
  const cap = settings.log_cap ?? Infinity;
  return together(logs, A, Math.min(log, cap), (ratio, a) =>
    log <= cap && !clips(ratio, a, settings) ? 1 : 0,
  );
}

// A detached ratio that is capped, and cut where `outside(t)`.
const capped = (logs, cap, outside) => {
  const ratio = logs.map(ratioOf);
  return { ratio, gate: ratio.map((r, t) => (outside(t) ? 0 : Math.min(r, cap) / r)) };
};
// KL of two outcomes, this token or another, from its old and new log-probability.
const binaryKL = (old, log) => {
  const p = Math.exp(old);
  const others = Math.log((1 - p + 1e-8) / (1 - Math.exp(old + log) + 1e-8));
  return -p * log + (1 - p) * others;
};
// One detached weight of the completion.
const weighed = (logs, gate) => {
  const ratio = ratioOf(sum(logs));
  return { ratio: logs.map(() => ratio), gate: logs.map((_, t) => gate(ratio, t)) };
};

/* (log-ratios of one completion, advantages of its tokens, settings, their old log-probabilities)
   -> ratio and gate of its tokens: the slope by log π, divided by the advantage. */
const SURROGATES = {
  reinforce: (logs) => ({ ratio: logs.map(() => 1), gate: logs.map(() => 1) }),
  ppo_clip: (logs, A, settings) =>
    tokenwise(logs, A, (ratio, a, log) => (clips(ratio, a, settings) ? 0 : within(log))),
  dual_clip: (logs, A, settings) =>
    tokenwise(logs, A, (ratio, a, log) =>
      clips(ratio, a, settings) || (a < 0 && ratio > settings.cap) ? 0 : within(log),
    ),
  gspo: geometric,
  gspo_token: geometric,
  sequence_product: (logs, A, settings) =>
    together(logs, A, sum(logs), (ratio, a) => (clips(ratio, a, settings) ? 0 : 1)),
  gmpo(logs, A, { eps_low, eps_high }) {
    const cut = logs.map((log, t) =>
      A[t] > 0 ? Math.min(log, eps_high) : Math.max(log, -eps_low),
    );
    return together(logs, A, mean(cut), (_ratio, _A, t) => (cut[t] === logs[t] ? 1 : 0));
  },
  cispo: (logs, A, { low, high }) => tokenwise(logs, A, (ratio) => clamp(ratio, low, high) / ratio),
  sapo: (logs, A, { tau_pos, tau_neg }) =>
    tokenwise(logs, A, (ratio, a, log) => {
      const soft = 1 / (1 + Math.exp(-(a > 0 ? tau_pos : tau_neg) * (ratio - 1)));
      return 4 * soft * (1 - soft) * within(log);
    }),
  importance: (logs, A) => tokenwise(logs, A, (_ratio, _A, log) => within(log)),
  dppo_tv(logs, A, { delta_low, delta_high, cap }, olds) {
    const moved = logs.map((log, t) => Math.exp(olds[t] + log) - Math.exp(olds[t]));
    return capped(logs, cap, (t) => (A[t] > 0 ? moved[t] > delta_high : moved[t] < -delta_low));
  },
  dppo_kl: (logs, A, { delta_low, delta_high, cap }, olds) =>
    capped(logs, cap, (t) => {
      const distance = binaryKL(olds[t], logs[t]);
      return A[t] > 0 ? logs[t] > 0 && distance > delta_high : logs[t] < 0 && distance > delta_low;
    }),
  vespo: (logs, A, { k_pos, lam_pos, k_neg, lam_neg }) =>
    weighed(logs, (w, t) => {
      const [k, lam] = A[t] >= 0 ? [k_pos, lam_pos] : [k_neg, lam_neg];
      return w ** (k - 1) * Math.exp(lam * (1 - w));
    }),
  topr(logs, A, { cap }) {
    const { ratio } = weighed(logs, () => 1);
    return {
      ratio: ratio.map((w, t) => (A[t] < 0 ? w : 1)),
      gate: ratio.map((w, t) => (A[t] < 0 ? Math.min(w, cap) / w : 1)),
    };
  },
};
// One ratio speaks for the completion, whose tokens then share their corrections.
const ONE_RATIO = ["gspo", "gmpo", "sequence_product"];

/* (ratio, advantage, settings) -> the objective of a token, as a function of its ratio. Where
   the loss detaches the ratio or has none (cispo, reinforce) its value says nothing: here stands
   the function whose slope by log π is the gradient, A at ratio 1. */
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
  gmpo: (ratio, A, { eps_low, eps_high }) =>
    A * (A > 0 ? Math.min(ratio, Math.exp(eps_high)) : Math.max(ratio, Math.exp(-eps_low))),
};

const wholeWeight = (logs) => ratioOf(sum(logs));
const sampled = (f) => (step, settings) =>
  step.rows.map((i) => f(needed(step, "logSampler")[i], settings));

// What a token adds to the covariance of advantage and log π, over the live tokens.
function covariances({ logs, advantage, logOld, live }) {
  const logp = logs.map((row, i) => row.map((log, t) => logOld[i][t] + log));
  const count = Math.max(1, sum(live.flat()));
  const over = (x) => sum(x.flatMap((row, i) => row.filter((_, t) => live[i][t]))) / count;
  const [A, P] = [over(advantage), over(logp)];
  return logp.map((row, i) =>
    row.map((x, t) => (live[i][t] ? (advantage[i][t] - A) * (x - P) : 0)),
  );
}

// [i][t]: is the value among the `part` largest (at least one) of those that `among` takes?
function largest(values, { live }, part, among) {
  const most = Math.max(1, Math.floor(sum(live.flat()) * part));
  const found = values.flatMap((row, i) =>
    row.flatMap((x, t) => (live[i][t] && among(x) ? [{ x: Number(x.toFixed(12)), i, t }] : [])),
  );
  const chosen = values.map((row) => row.map(() => false));
  const ranked = found.sort((a, b) => b.x - a.x); // stable: of equal ones the earlier
  for (const { i, t } of ranked.slice(0, most)) chosen[i][t] = true;
  return chosen;
}
function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = q * (sorted.length - 1);
  const below = sorted[Math.floor(at)];
  return below + (at - Math.floor(at)) * (sorted[Math.ceil(at)] - below);
}

/* (step, settings) -> the correction of each token [i][t]. A step is a batch with `logs`
   (log π/π_old), `advantage` and `live` (1: the token is in the batch) of each token. */
const CORRECTIONS = {
  importance_sampling: sampled((logs) => logs.map(ratioOf)),
  truncated_is: sampled((logs, { low, cap }) =>
    logs.map((log) => clamp(ratioOf(log), low ?? 0, cap)),
  ),
  masked_is: sampled((logs, { low, high }) =>
    logs.map(ratioOf).map((w) => (w >= low && w <= high ? w : 0)),
  ),
  sequence_truncated_is: sampled((logs, { cap }) =>
    logs.map(() => Math.min(wholeWeight(logs), cap)),
  ),
  sequence_masked_is: sampled((logs, { cap }) => {
    const weight = wholeWeight(logs);
    return logs.map(() => (weight <= cap ? weight : 0));
  }),
  off_policy_mask: ({ logs, advantage }, { delta }) =>
    logs.map((row, i) => row.map((_, t) => Number(advantage[i][t] >= 0 || -mean(row) <= delta))),
  high_entropy(step, { part }) {
    const entropy = needed(step, "entropy");
    const { live } = step;
    const least = quantile(
      live.flatMap((row, i) => entropy[i].filter((_, t) => row[t])),
      1 - part,
    );
    return live.map((row, i) => row.map((is, t) => Number(is && entropy[i][t] >= least)));
  },
  clip_cov(step, { low, high, part }) {
    const chosen = largest(covariances(step), step, part, (x) => x > low && x < high);
    return chosen.map((row) => row.map((is) => Number(!is)));
  },
};

const k3 = (d, cap) => {
  const reverse = clamp(-d, -LIMIT, LIMIT);
  return Math.min(Math.expm1(reverse) - reverse, cap ?? Infinity);
};
const k3Slope = (d, cap) =>
  within(d) && k3(d) <= (cap ?? Infinity) ? -Math.expm1(clamp(-d, -LIMIT, LIMIT)) : 0;
/* (log π/π_ref, log π/π_old of one completion, settings, its number, the step) -> the slope of
   β·KL by log π of each token */
const KL = {
  k1: (refs, _, { beta }) => refs.map(() => beta),
  k2: (refs, _, { beta }) => refs.map((d) => beta * d),
  k3: (refs, _, { beta, cap }) => refs.map((d) => beta * k3Slope(d, cap)),
  k3_ratio: (refs, logs, { beta }) =>
    refs.map((d, t) => beta * ratioOf(logs[t]) * (within(logs[t]) * k3(d) + k3Slope(d))),
  k3_sequence_ratio(refs, logs, { beta }) {
    const log = mean(logs);
    const shared = within(log) * mean(refs.map((d) => k3(d)));
    return refs.map((d) => beta * ratioOf(log) * (shared + k3Slope(d)));
  },
  k_abs: (refs, _, { beta }) => refs.map((d) => beta * Math.sign(d)),
  k2_gradient: (refs, _, { beta }) => refs.map((d) => beta * d),
  k2_old: (_, logs, { beta }) => logs.map((log) => beta * log),
  k2_sequence: (_, logs, { beta }) => logs.map(() => beta * sum(logs)),
  kl_cov(_, logs, { beta, part }, i, step) {
    const chosen = largest(covariances(step), step, part, (x) => x > 0)[i];
    return logs.map((log, t) => beta * Math.sign(log) * chosen[t]);
  },
};
const TO_OLD = ["k2_old", "k2_sequence", "kl_cov"]; // need no reference

// (batch with `advantage` [i][t], settings) -> W of each token of each completion [i]
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
    const { rows, tokens, present, group } = batch;
    const side = batch.advantage.map((row) => Math.sign(sum(row)));
    const prompts = new Set(group.filter((_, i) => present[i])).size;
    const same = (i) => rows.filter((j) => group[j] === group[i] && side[j] === side[i]);
    const size = (some) => count(some.map((j) => present[j]));
    const share = (i) =>
      size(same(i)) /
      Math.max(1, size(batch.members.get(group[i]))) /
      Math.max(1, sum(same(i).map((j) => tokens[j])));
    return rows.map((i) => share(i) / Math.max(1, prompts));
  },
};

/* The push of every token, and everything on the way to it: `rewards` and `tokenReward` after
   shaping, `centred` (of a completion, or of each token), and, [i][t], `advantage, W, ratio,
   gate, correction, kl, push` = advantage · W · ratio · gate · correction + kl, and `share`, the
   signed part of `total`, the step's whole |push|. A completion that a filter took out has no W
   and no push. */
function pushOf(spec, fields) {
  const shaped = { ...fields };
  for (const choice of spec.rewards)
    Object.assign(shaped, lookup(REWARDS, "reward shaping", choice)(shaped, choice));
  const batch = batchOf({ ...shaped, rawRewards: fields.rewards, filters: spec.filters });
  const { rows, lengths, present, rewards, tokenReward } = batch;
  const centred = lookup(BASELINES, "baseline", spec.baseline)(batch, spec.baseline);
  const scaled = lookup(SCALES, "scale", spec.scale)(centred, batch, spec.scale);
  const perToken = (f) => rows.map((i) => Array.from({ length: lengths[i] }, (_, t) => f(i, t)));
  const advantage = rows.map((i) => onTokens(present[i] ? scaled[i] : 0, lengths[i]));
  if (ONE_RATIO.includes(spec.surrogate.name) && scaled.some(Array.isArray))
    throw new Error("one ratio per completion needs one advantage per completion, not per token.");
  const logs = perToken((i, t) => (present[i] ? (batch.logRatio?.[i][t] ?? 0) : 0));
  const weights = (choice) => {
    const weigh = lookup(AGGREGATIONS, "aggregation", choice);
    const W = weigh({ ...batch, advantage }, choice);
    return rows.map((i) => (present[i] ? W[i] : 0));
  };
  const W = weights(spec.aggregation);
  const surrogate = lookup(SURROGATES, "surrogate", spec.surrogate);
  const step = { ...batch, logs, advantage, live: perToken((i) => Number(present[i])) };
  const factors = rows.map((i) =>
    surrogate(logs[i], advantage[i], spec.surrogate, batch.logOld?.[i]),
  );
  const correction = correctionOf(spec, step);
  const kl = klOf(spec, step, spec.kl_aggregation ? weights(spec.kl_aggregation) : W);
  const push = perToken((i, t) => {
    const { ratio, gate } = factors[i];
    return advantage[i][t] * W[i] * ratio[t] * gate[t] * correction[i][t] + kl[i][t];
  });
  const total = sum(push.flat().map(Math.abs));
  return {
    batch,
    rewards,
    tokenReward,
    centred,
    advantage,
    W: perToken((i) => W[i]),
    ratio: factors.map((f) => f.ratio),
    gate: factors.map((f) => f.gate),
    correction,
    kl,
    push,
    total,
    share: perToken((i, t) => (total > 0 ? push[i][t] / total : 0)),
  };
}

function correctionOf(spec, step) {
  const { rows, lengths, present } = step;
  const none = (i) => Array(lengths[i]).fill(1);
  if (!spec.correction) return rows.map(none);
  const own = lookup(CORRECTIONS, "correction", spec.correction)(step, spec.correction);
  const mixed = ONE_RATIO.includes(spec.surrogate.name);
  const shared = own.map((row) => (mixed ? row.map(() => mean(row)) : row));
  return rows.map((i) => (present[i] ? shared[i] : none(i)));
}

// -W_kl · slope; nothing without the reference that it needs.
function klOf(spec, step, W) {
  const { rows, lengths, present, logRef, logs } = step;
  if (!spec.kl || (!logRef && !TO_OLD.includes(spec.kl.name)))
    return lengths.map((n) => Array(n).fill(0));
  const slope = lookup(KL, "KL term", spec.kl);
  return rows.map((i) =>
    present[i]
      ? slope(logRef?.[i], logs[i], spec.kl, i, step).map((x) => -W[i] * x)
      : Array(lengths[i]).fill(0),
  );
}

// ddof, eps and k of the controls in place of a choice's own, where it has them.
function turned(spec, { ddof, eps, k }) {
  const set = (choice) => ({
    ...choice,
    ...Object.fromEntries(Object.entries({ ddof, eps, k }).filter(([name]) => name in choice)),
  });
  return { ...spec, baseline: set(spec.baseline), scale: set(spec.scale) };
}

export {
  KL,
  OBJECTIVES,
  SURROGATES,
  advantagesOf,
  batchOf,
  clamp,
  isDead,
  k3,
  lookup,
  mean,
  need,
  perPrompt,
  pushOf,
  spreadOf,
  sum,
  turned,
};
