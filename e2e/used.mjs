// Records which controls the page offers and which ones the run has used: every control that came
// into view, every choice of a list, and every key that the dialog *Keys* names. A control is
// identified by the key of its text in `web/src/texts` and by the title of its dialog.
import fs from "node:fs";
import { createRequire } from "node:module";

const web = new URL("../web/", import.meta.url);
const ts = createRequire(new URL("package.json", web))("typescript");

async function texts(language) {
  const source = fs.readFileSync(new URL(`src/texts/${language}.ts`, web), "utf8");
  const { outputText } = ts.transpileModule(source, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
  return (await import(`data:text/javascript,${encodeURIComponent(outputText)}`))[language];
}

const english = await texts("en");
const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** Patterns of all texts. Those with values come last, because `{name}` alone matches anything. */
const patterns = Object.entries(english)
  .map(([key, text]) => ({ key: key.replace(/\.(one|other)$/, ""), text, values: (text.match(/\{\w+\}/g) ?? []).length }))
  .sort((one, other) => one.values - other.values || other.text.length - one.text.length)
  .map(({ key, text }) => ({ key, shape: new RegExp(`^${text.split(/(\{\w+\})/).map((part) => (/^\{\w+\}$/.test(part) ? `(?<${part.slice(1, -1)}>.+)` : literal(part))).join("")}$`) }));

/** Returns the key of a text of the page; the text itself if it has no key. */
function keyOf(text) {
  for (const { key, shape } of patterns) {
    const found = shape.exec(text);
    // The action of a button is part of its identity, not only a value.
    if (found) return found.groups?.action ? `${key}(${keyOf(found.groups.action)})` : key;
  }
  return text;
}

/** Runs in the page, and reports which controls come into view and which are used. */
function watch() {
  const CONTROLS = "button, a[href], input, select, summary";
  const told = new Set();
  const tell = (what) => {
    const text = JSON.stringify(what);
    if (told.has(text)) return;
    told.add(text);
    window.tellTheRun(what);
  };
  const own = (element) => {
    const copy = element.cloneNode(true);
    for (const part of copy.querySelectorAll("kbd, [aria-hidden=true], select, input")) part.remove();
    return copy.textContent.trim().replace(/\s+/g, " ");
  };
  const nameOf = (element) => {
    if (element.matches("a.job-title")) return "(job)";
    if (element.matches(".crumbs button")) return "(directory)";
    const label = element.getAttribute("aria-label") ?? "";
    if (label !== "") return label;
    return own(element.matches("input, select") ? (element.closest("label") ?? element) : element);
  };
  const described = (element) => ({
    dialog: element.closest("dialog")?.querySelector("h2")?.textContent ?? "",
    role: element.localName,
    name: nameOf(element),
  });
  const optionsOf = (select) => (select.closest(".pane") ? [] : [...select.options].map((option) => option.textContent.trim()));
  const isEnglish = () => document.documentElement.lang === "en";
  const look = () => {
    if (!isEnglish()) return;
    for (const element of document.querySelectorAll(CONTROLS)) {
      if (element.disabled || !element.checkVisibility({ visibilityProperty: true })) continue;
      tell({ seen: true, ...described(element) });
      if (element.localName !== "select") continue;
      for (const option of optionsOf(element)) tell({ seen: true, ...described(element), option });
    }
  };
  const use = (event) => {
    const element = event.target instanceof Element ? event.target.closest(CONTROLS) : null;
    useOf(element, event.type);
    // Checked again for a change of language, which takes effect only after this event.
    if (event.type === "change") setTimeout(() => { useOf(element, event.type); });
  };
  const useOf = (element, type) => {
    // A click on a list only opens it; choosing from it counts as use.
    if (element === null || !isEnglish() || (type === "click" && element.matches("select, input:not([type=checkbox])"))) return;
    tell({ seen: false, ...described(element) });
    if (element.localName === "select" && optionsOf(element).length > 0) {
      tell({ seen: false, ...described(element), option: element.selectedOptions[0]?.textContent.trim() });
    }
  };
  for (const kind of ["click", "input", "change"]) document.addEventListener(kind, use, true);
  document.addEventListener(
    "keydown",
    (event) => {
      if (!(event.target instanceof Element) || !event.target.matches("[role=grid]")) return;
      tell({ keys: [event.ctrlKey && "Ctrl", event.shiftKey && "Shift", event.key].filter(Boolean).join(" ") });
    },
    true,
  );
  let waiting = false;
  new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      look();
    }, 100);
  }).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "open", "aria-pressed"] });
}

/** Names of keys in the dialog *Keys* that differ from the browser's. */
const KEY_NAMES = { "↑": "ArrowUp", "↓": "ArrowDown", Space: " ", Del: "Delete", Esc: "Escape", A: "a" };

/** Splits a line of the dialog into keys: `Ctrl ↑ ↓` is `Ctrl ArrowUp` and `Ctrl ArrowDown`. */
function keysOf(line) {
  const modifiers = [];
  const keys = [];
  for (const word of line.split(" ")) {
    if (word === "Ctrl" || word === "Shift") modifiers.push(word);
    else keys.push([...modifiers, KEY_NAMES[word] ?? word].join(" "));
  }
  return keys;
}

export class Used {
  #seen = new Map();
  #used = new Set();
  #pressed = new Set();
  #keys = [];

  /** Starts recording in all pages of this context. */
  async watch(context) {
    await context.exposeBinding("tellTheRun", (_, what) => { this.#take(what); });
    await context.addInitScript(watch);
  }

  #take({ seen, keys, dialog, role, name, option }) {
    if (keys !== undefined) {
      this.#pressed.add(keys);
      return;
    }
    const parts = [dialog === "" ? "" : `dialog ${keyOf(dialog)}`, `${role} ${keyOf(name)}`, option === undefined ? "" : `option ${keyOf(option)}`];
    const id = parts.filter(Boolean).join(", ");
    if (seen) this.#seen.set(id, option ?? name);
    else this.#used.add(id);
  }

  /** Takes the lines of the dialog *Keys*. */
  keys(lines) {
    this.#keys = lines.flatMap(keysOf);
  }

  get controls() {
    return this.#seen.size;
  }

  get pressed() {
    return this.#keys.length;
  }

  /** Returns what was offered and not used. */
  faults() {
    const controls = [...this.#seen].filter(([id]) => !this.#used.has(id)).map(([id, name]) => `${id} (${name}) was never used`);
    const keys = this.#keys.filter((key) => !this.#pressed.has(key)).map((key) => `the key ${key} of the dialog was never pressed in a list`);
    const none = this.#seen.size === 0 || this.#keys.length === 0 ? ["nothing was seen of what the page offers"] : [];
    return [...none, ...controls, ...keys];
  }
}
