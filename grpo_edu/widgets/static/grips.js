// What is dragged in a picture itself: elements with data-grip. Of those with one name a single one
// has a tabindex: it takes the focus and hears keys. The picture is drawn anew while it is dragged,
// so the root listens.

import { escaped } from "./shared.js";

const SLIP = 3; // a press that moves less than this many pixels is a click

/* `taken(grip, event, state)`: {changed, move(dx, dy)}, the traits that a press and a drag change;
   `pressed(grip, key, state)`: those that a key changes, null for a key that means nothing. */
function gripsOf({ taken, pressed }) {
  return (root, state, put) => {
    let drag = null;
    const down = (event) => {
      const grip = event.target.closest("[data-grip]");
      if (!grip || event.button !== 0) return;
      event.preventDefault(); // or the browser would select text
      focusOn(root, grip.dataset.grip);
      drag = { ...taken(grip, event, state()), x: event.clientX, y: event.clientY, far: false };
      root.setPointerCapture(event.pointerId);
      put(drag.changed);
    };
    const move = (event) => {
      if (drag === null) return;
      const dx = event.clientX - drag.x;
      const dy = event.clientY - drag.y;
      drag.far ||= Math.max(Math.abs(dx), Math.abs(dy)) >= SLIP;
      if (drag.far) put(drag.move(dx, dy));
    };
    const up = () => {
      drag = null;
    };
    const key = (event) => {
      const grip = event.target.closest("[data-grip]");
      const changed = grip && pressed(grip, event.key, state());
      if (!changed) return;
      event.preventDefault();
      event.stopPropagation();
      put(changed);
    };
    const heard = {
      pointerdown: down,
      pointermove: move,
      pointerup: up,
      pointercancel: up,
      keydown: key,
    };
    Object.entries(heard).forEach(([name, f]) => root.addEventListener(name, f));
    return () => Object.entries(heard).forEach(([name, f]) => root.removeEventListener(name, f));
  };
}

const focusOn = (root, name) =>
  root.querySelector(`[data-grip="${name}"][tabindex]`)?.focus({ preventScroll: true });

// Draws, and gives the focus back to the grip that had it.
function keepingFocus(root, draw) {
  const name = root.getRootNode().activeElement?.dataset?.grip;
  draw();
  if (name) focusOn(root, name);
}

/* Attributes of a grip that is a slider: `now` out of `low` to `high`, and `text`, what a screen
   reader says; `reached`: the Tab key stops here. */
const gripAttributes = (name, { label, text, now, low, high, reached }) =>
  `data-grip="${name}" data-lm-suppress-shortcuts="true" ` +
  (reached
    ? `tabindex="0" role="slider" aria-label="${escaped(label)}" ` +
      `aria-valuetext="${escaped(text)}" aria-valuenow="${now}" ` +
      `aria-valuemin="${low}" aria-valuemax="${high}"`
    : "");

export { gripAttributes, gripsOf, keepingFocus };
