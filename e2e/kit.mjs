// Helpers that all parts of the run share.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { Pane } from "./pane.mjs";

export const { LONGHAUL, HISTORY, SERVER, CHROMIUM, SHOTS, ROOT, HOST, HOME, LONGHAUL_HOME, TARGET } = process.env;
/** Timeout of every wait, in ms. It is long because slowness is no failure here. */
export const PATIENCE = 120_000;
/**
 * Duration of the longest frame that feels smooth, in ms. Asserted only on request, because
 * machines that share their processors stutter.
 */
const MAX_FRAME = 50;
const assertSpeed = process.env.E2E_ASSERT_SPEED === "1";
const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const started = Date.now();

export function say(text) {
  console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s  ${text}`);
}

export function demand(truth, text) {
  if (!truth) throw new Error(text);
}

/** Fails unless both values have the same JSON. */
export function same(is, wanted, what) {
  demand(JSON.stringify(is) === JSON.stringify(wanted), `${what}: ${JSON.stringify(is)} instead of ${JSON.stringify(wanted)}`);
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until `test` returns something truthy, and returns that. */
export async function eventually(what, test) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await test();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it does not come: ${what}`);
    await pause(50);
  }
}

/** Waits until `ask` returns `wanted`. */
export async function becomes(what, ask, wanted) {
  let last;
  await eventually(what, async () => {
    last = await ask();
    return JSON.stringify(last) === JSON.stringify(wanted);
  }).catch((error) => {
    throw new Error(`${error.message}: ${JSON.stringify(last)} instead of ${JSON.stringify(wanted)}`);
  });
}

export function longhaul(...words) {
  return execFileSync(LONGHAUL, words, { stdio: ["ignore", "pipe", "inherit"] }).toString().trim();
}

/** Returns a job from the agent; undefined if the agent does not answer or has no such job. */
export function job(id) {
  try {
    return JSON.parse(execFileSync(LONGHAUL, ["job", String(id), "--json"], { stdio: ["ignore", "pipe", "ignore"] }).toString());
  } catch {
    return undefined;
  }
}

/** Waits until a job satisfies `pleases`, and returns it. */
export function jobThat(id, what, pleases) {
  return eventually(`job ${id}: ${what}`, () => {
    const one = job(id);
    return one !== undefined && pleases(one) ? one : undefined;
  });
}

/** Starts an agent, and returns its process once it is ready. */
export async function agent() {
  const child = spawn(LONGHAUL, ["agent", "--json"], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((ready, failed) => {
    child.stdout.once("data", ready);
    child.once("exit", () => failed(new Error("the agent ended")));
  });
  return child;
}

export async function killed(child) {
  const ended = new Promise((end) => child.once("exit", end));
  child.kill("SIGKILL");
  await ended;
}

export function write(file, text, time) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
  if (time !== undefined) fs.utimesSync(file, new Date(time), new Date(time));
}

export const read = (...parts) => fs.readFileSync(path.join(...parts), "utf8");
export const is = (...parts) => fs.existsSync(path.join(...parts));

/** Fails unless two trees are equal. */
export function sameTrees(one, other) {
  execFileSync("diff", ["-r", one, other], { stdio: "inherit" });
}

/** Fails unless two files are equal. */
export function sameFiles(one, other) {
  execFileSync("cmp", [one, other], { stdio: "inherit" });
}

/**
 * Scrolls a list by `step` pixels per frame until an element matches the selector `last`. Returns
 * the duration of each frame in ms.
 */
export async function scrollThrough(list, step, last) {
  return list.evaluate(
    async (element, { step, last, patience }) => {
      const times = [];
      let before = performance.now();
      const end = before + patience;
      for (;;) {
        element.scrollTop += step;
        await new Promise((next) => requestAnimationFrame(next));
        const now = performance.now();
        times.push(now - before);
        before = now;
        const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 1;
        if (isAtEnd && element.querySelector(last) !== null) return times;
        if (now > end) throw new Error(`${last} does not come`);
      }
    },
    { step, last, patience: PATIENCE },
  );
}

/** Prints the longest frames. */
export function sayFrames(what, frames) {
  const longest = [...frames].sort((one, other) => other - one).slice(0, 3);
  say(`${what}: the longest of ${frames.length} frames took ${longest.map((frame) => frame.toFixed(0)).join(", ")} ms`);
  demand(!assertSpeed || (longest[0] ?? 0) <= MAX_FRAME, `${what}: a frame took longer than ${MAX_FRAME} ms`);
}

/** The page, with the actions that its views have in common. */
export class Screen {
  constructor(page, ran) {
    this.page = page;
    this.ran = ran;
    this.left = new Pane(page, "left");
    this.right = new Pane(page, "right");
    page.setDefaultTimeout(PATIENCE);
  }

  /** Loads an address. The coverage so far is kept. */
  async load(address) {
    await this.leave();
    await this.page.goto(address);
    await this.ran?.begin(this.page);
    this.loaded = true;
  }

  async leave() {
    if (!this.loaded) return;
    await this.ran?.end(this.page);
    this.loaded = false;
    await this.page.goto("about:blank");
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  async view(name) {
    await this.page.getByRole("navigation", { name: "Views" }).getByRole("link", { name }).click();
    await this.page.getByRole("navigation", { name: "Views" }).locator("[aria-current=page]", { hasText: name }).waitFor();
  }

  get dialog() {
    return this.page.getByRole("dialog");
  }

  /** Waits for a dialog with this title. */
  async asks(title) {
    await this.page.getByRole("dialog", { name: title, exact: true }).waitFor();
  }

  async answer(button) {
    await this.dialog.getByRole("button", { name: button, exact: true }).click();
  }

  async closed() {
    await this.dialog.waitFor({ state: "detached" });
  }

  /** Waits for a message and dismisses it. Messages that are no errors disappear by themselves. */
  async said(words) {
    const message = this.page.getByRole("region", { name: "Messages" }).locator(".message", { hasText: words }).first();
    await message.waitFor();
    await message.getByRole("button", { name: "Dismiss" }).click({ timeout: 5000 }).catch(() => undefined);
  }

  /** Fails if axe finds a serious or critical problem of accessibility. */
  async accessible(name) {
    const session = await this.page.context().newCDPSession(this.page);
    const asked = `${axeSource}; axe.run().then((found) => JSON.stringify(found.violations
      .filter((one) => one.impact === "serious" || one.impact === "critical")
      .map((one) => [one.id, one.nodes.map((node) => node.html)])))`;
    const answer = await session.send("Runtime.evaluate", { expression: asked, awaitPromise: true });
    demand(answer.result.value === "[]", `${name}: ${answer.result.value ?? JSON.stringify(answer)}`);
    await session.detach();
    // The screenshots that the documentation shows.
    if (SHOTS && ["files", "jobs"].includes(name)) await this.page.screenshot({ path: path.join(SHOTS, `${name}.png`) });
    say(`${name}: nothing serious for accessibility`);
  }

  /** Returns the row of a job, in the queue or in the history. */
  job(id) {
    return this.page.getByRole("listitem").filter({ has: this.page.locator(`a[href="#jobs/${id}"]`) });
  }

  /** Presses the button of an action in the row of a job. */
  async ask(action, id) {
    await this.job(id).getByRole("button", { name: `${action}: job ${id}`, exact: true }).click();
  }

  /** Waits until the row of a job shows a state. */
  async shows(id, state) {
    await this.job(id).locator(".state").getByText(state, { exact: true }).waitFor();
  }

  /** Confirms the dialog of a copy, and returns the number of the job. */
  async startCopy() {
    await this.answer("Start the copy");
    await this.closed();
    return JSON.parse(longhaul("jobs", "-n", "1", "--json")).id;
  }
}
