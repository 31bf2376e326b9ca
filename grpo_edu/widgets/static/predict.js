// Predict, then reveal: nothing of the answer is in the page before a guess or "show me".

import { clamp } from "./objective.js";
import { attributes, escaped, explorer, field, number, signed } from "./shared.js";

const withUnit = (s, x) => (typeof x === "string" ? x : `${number(x)} ${s.unit}`.trim());
const middle = (s) => (s.span[0] + s.span[1]) / 2;

// ---- what is said of the guess ----

/* One sentence on the difference between guess and answer. */
export function difference({ guess, answer, tolerance, unit }) {
  if (guess === null) return "You looked without a guess.";
  if (typeof answer === "string")
    return guess === answer ? "Your guess is right." : "The answer is another one.";
  const gap = guess - answer;
  if (Math.abs(gap) <= tolerance)
    return gap === 0 ? "Your guess is exactly right." : "Your guess is near enough.";
  if (guess * answer < 0) return `The sign is wrong: the answer is ${signed(answer)}.`;
  return `Your guess is ${withUnit({ unit }, Math.abs(gap))} too ${gap > 0 ? "high" : "low"}.`;
}

// ---- the picture: guess and answer side by side ----

/* Where a bar stands that begins at 0, or at the end of the span that is nearer to 0. */
function place({ span: [low, high] }, value) {
  const at = (x) => (100 * (x - low)) / (high - low);
  const start = at(clamp(0, low, high));
  return `left:${Math.min(start, at(value))}%;width:${Math.abs(at(value) - start)}%`;
}

function lineOf(s, name, value) {
  if (value === null) return "";
  const bar = s.span.length ? `<span class="track"><i style="${place(s, value)}"></i></span>` : "";
  return `<dt>${name}</dt><dd data-is="${name}">${bar}<b>${escaped(withUnit(s, value))}</b></dd>`;
}

function draw(root, s) {
  root.querySelector("details").hidden = true;
  root.querySelector(".picture").innerHTML = s.revealed
    ? `<dl class="reveal">${lineOf(s, "your guess", s.guess)}${lineOf(s, "answer", s.answer)}</dl>
      <p>${escaped(difference(s))} ${escaped(s.because)}</p>`
    : "";
  const dragged = root.querySelector(".dragged i");
  if (dragged) dragged.style = place(s, s.guess ?? middle(s));
}

// ---- the controls ----

const key = 'data-lm-suppress-shortcuts="true" data-key="guess"';
const option = (group) => (choice) =>
  `<label class="tick"><input type="radio" name="${group}" ${key}
    aria-label="${escaped(choice)}" value="${escaped(choice)}">${escaped(choice)}</label>`;

function guessing(s) {
  if (s.choices.length) {
    const group = `g${Math.random().toString(36).slice(2)}`;
    return `<div role="radiogroup" aria-label="your guess">
      ${s.choices.map(option(group)).join("")}</div>`;
  }
  if (!s.span.length) return field("guess", "your guess", 'step="any"');
  const [low, high] = s.span;
  return `<label class="dragged">drag the bar<span class="track"><i></i></span>
    <input type="range" ${attributes("guess", "your guess")}
    min="${low}" max="${high}" step="${s.step}"><output></output></label>`;
}

const controls = (s) =>
  `<p class="question">${escaped(s.question)}</p><div class="bar">${guessing(s)}
  <button type="button" ${attributes("check", "check my guess")}></button>
  <button type="button" ${attributes("reveal", "show me the answer")}></button></div>`;

function shown(name, s) {
  if (name === "check") return { value: "check my guess", off: s.revealed || s.guess === null };
  if (name === "reveal") return { value: "show me", off: s.revealed };
  const start = s.span.length ? middle(s) : null;
  const text = s.guess === null ? "?" : withUnit(s, s.guess);
  return { value: s.guess ?? start, text, off: s.revealed };
}

function read(input, s) {
  if (s.choices.length) return input.value;
  if (input.validity.badInput) throw new Error("your guess is not a number: type one, as 0.25.");
  return input.value === "" ? null : Number(input.value);
}

const changes = {
  guess: (input, s) => (s.revealed ? {} : { guess: read(input, s) }),
  check: (_, s) => (s.guess === null ? {} : { revealed: true }),
  reveal: () => ({ revealed: true }),
};

const keys = [
  "question",
  "choices",
  "span",
  "step",
  "tolerance",
  "unit",
  "answer",
  "because",
  "guess",
  "revealed",
];
const render = explorer({ keys, controls, shown, changes, answer: (s) => s, draw });
export default {
  render({ model, el }) {
    const done = render({ model, el });
    el.querySelector(".picture").setAttribute("role", "status");
    el.addEventListener("keydown", (event) => {
      // Enter in the field of a number checks it
      if (event.key === "Enter" && event.target.matches("input[type=number]"))
        el.querySelector('[data-key="check"]').click();
    });
    return done;
  },
};
