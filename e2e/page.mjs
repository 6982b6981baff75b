// The page in a real browser, in the node `client` of a lab, against a server in the node `server`: what a person does with it, while the network
// goes away for five seconds and the agent is killed. Run by `run.sh`; says a line for each step, and fails at the first that is not so.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const { LONGHAUL, SERVER, CHROMIUM, SHOTS, ROOT, HOME } = process.env;
const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const started = Date.now();

function say(text) {
  console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s  ${text}`);
}

function demand(truth, text) {
  if (!truth) throw new Error(text);
}

function longhaul(...words) {
  return execFileSync(LONGHAUL, words, { stdio: ["ignore", "pipe", "inherit"] }).toString().trim();
}

/** An agent under way. */
async function agent() {
  const child = spawn(LONGHAUL, ["agent", "--json"], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((ready, failed) => {
    child.stdout.once("data", ready);
    child.once("exit", () => failed(new Error("the agent ended")));
  });
  return child;
}

/** What axe finds that is serious or worse. */
async function accessible(page, name) {
  const session = await page.context().newCDPSession(page);
  const asked = `${axeSource}; axe.run().then((found) => JSON.stringify(found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .map((one) => [one.id, one.nodes.map((node) => node.html)])))`;
  const answer = await session.send("Runtime.evaluate", { expression: asked, awaitPromise: true });
  demand(answer.result.value === "[]", `${name}: ${answer.result.value ?? JSON.stringify(answer)}`);
  await session.detach();
  // Those that the documents show.
  if (SHOTS && ["files", "jobs"].includes(name)) await page.screenshot({ path: path.join(SHOTS, `${name}.png`) });
  say(`${name}: nothing serious for accessibility`);
}

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
let running = await agent();
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith("http://127.0.0.1:")) faults.push(`asks ${request.url()}`);
  });

  longhaul("ls", "--accept-new", `lh://${SERVER}/`);
  const opened = Date.now();
  await page.goto(longhaul("ui", "--print"));
  await page.getByRole("grid").first().waitFor();
  say(`the page is there after ${Date.now() - opened} ms`);
  demand(!page.url().includes("ticket"), "the ticket stays in the address");
  const origin = new URL(page.url()).origin;

  await page.getByRole("link", { name: "Places" }).click();
  await page.getByLabel("Name", { exact: true }).fill("store");
  await page.getByLabel("Kind").selectOption({ label: "Longhaul server" });
  await page.getByLabel("Location").fill(`lh://${SERVER}/`);
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("button", { name: "Test store" }).click();
  await page.getByText("Works", { exact: false }).first().waitFor();
  await accessible(page, "places");

  await page.getByRole("link", { name: "Files" }).click();
  const [left] = await page.getByLabel("Place", { exact: true }).all();
  await left.selectOption({ label: "store" });
  const grid = page.getByRole("grid").first();
  await grid.getByText("tree", { exact: true }).waitFor();
  await accessible(page, "files");

  // A directory of 100,000 entries: how long until all are there, and how long a frame takes while they are scrolled.
  const many = Date.now();
  await grid.getByText("many", { exact: true }).dblclick();
  await page.getByText(/100,000 entries/).first().waitFor({ timeout: 60000 });
  say(`100,000 entries are there after ${Date.now() - many} ms`);
  const frames = await grid.evaluate(async (element) => {
    const scrolled = [element, ...element.querySelectorAll("*")].find((one) => one.scrollHeight > one.clientHeight + 1000);
    const longest = [];
    let before = performance.now();
    for (let frame = 0; frame < 120; frame += 1) {
      scrolled.scrollTop += 9000;
      await new Promise((next) => requestAnimationFrame(next));
      const now = performance.now();
      longest.push(now - before);
      before = now;
    }
    return longest.sort((one, other) => other - one).slice(0, 3);
  });
  say(`the longest frames of 120 while scrolling: ${frames.map((frame) => frame.toFixed(0)).join(", ")} ms`);
  await page.getByRole("button", { name: "Up", exact: true }).first().click();
  await grid.getByText("tree", { exact: true }).waitFor();

  // The keyboard alone: both, to the other pane.
  await grid.focus();
  await page.getByLabel("Filter names").first().fill("e");
  await grid.focus();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await page.getByRole("dialog").waitFor();
  await accessible(page, "copy");
  await page.getByRole("button", { name: "Start the copy" }).click();
  await page.getByRole("link", { name: "Jobs" }).click();
  await page.getByRole("progressbar").first().waitFor();
  say("the copy is submitted");
  const come = async () => JSON.parse(longhaul("job", "1", "--json"));
  const until = async (pleases, what) => {
    for (let tries = 0; tries < 600; tries += 1) {
      const job = await come().catch(() => undefined);
      if (job !== undefined && pleases(job)) return job;
      await page.waitForTimeout(100);
    }
    throw new Error(`${what}: ${JSON.stringify(await come())}`);
  };
  await until((job) => (job.progress?.bytes ?? 0) > 100e6, "no progress");
  await accessible(page, "jobs");
  const way = execFileSync("ip", ["route", "show", SERVER]).toString().trim().split(/\s+/);
  execFileSync("ip", ["route", "replace", "blackhole", SERVER]);
  await page.waitForTimeout(5000);
  execFileSync("ip", ["route", "replace", ...way]);
  say("the network was away for 5 s");
  const before = (await come()).progress?.bytes ?? 0;
  await until((job) => (job.progress?.bytes ?? 0) > before + 50e6, "it does not go on after the network was away");
  say("it goes on");
  running.kill("SIGKILL");
  await new Promise((ended) => running.once("exit", ended));
  await page.getByText(/not connected/i).first().waitFor({ timeout: 20000 });
  say("the agent is killed, and the page says that it is away");
  running = await agent();
  const address = longhaul("ui", "--print");
  say(`another agent: ${new URL(address).origin === origin ? "the same address" : "another address"}`);
  await page.goto("about:blank");
  await page.goto(address);
  await page.getByRole("link", { name: "Jobs" }).click();
  const job = await until((one) => one.ended !== null, "it does not end");
  demand(job.state === "done", JSON.stringify(job));
  await page.getByText("done", { exact: true }).and(page.locator(":not(option)")).first().waitFor();
  say(`done after ${job.attempts} attempts`);
  execFileSync("diff", ["-r", path.join(ROOT, "tree"), path.join(HOME, "tree")], { stdio: "inherit" });
  execFileSync("cmp", [path.join(ROOT, "large"), path.join(HOME, "large")], { stdio: "inherit" });
  say("every file is the same");

  // A phone, in the dark, in German.
  const phone = await browser.newContext({ viewport: { width: 360, height: 740 }, colorScheme: "dark", locale: "de-DE" });
  const small = await phone.newPage();
  await small.goto(longhaul("ui", "--print"));
  await small.getByRole("grid").first().waitFor();
  const wide = await small.evaluate(() => document.documentElement.scrollWidth);
  demand(wide <= 360, `${wide} px wide`);
  await accessible(small, "phone");
  demand(faults.length === 0, faults.join("; "));
  say("all of it holds");
} finally {
  await browser.close();
  running.kill("SIGKILL");
}
