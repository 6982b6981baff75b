// Measures the speed of the page in a separate context without coverage: a directory of 100,000
// entries, and a history of 10,000 jobs. The history is written into the agent's store as agents
// write it, with reports of real copies.
import { execFileSync, spawnSync } from "node:child_process";
import { HISTORY, HOME, LONGHAUL, LONGHAUL_HOME, SERVER, Screen, becomes, demand, longhaul, say, sayFrames, scrollThrough, write } from "../kit.mjs";

const JOBS = 10_000;

/** Fills the store before its agent starts. Returns the number of jobs in each state. */
export function fill() {
  const report = (destination) => {
    const { stdout } = spawnSync(LONGHAUL, ["cp", "--json", "-r", `${HOME}/run`, destination], { stdio: ["ignore", "pipe", "inherit"] });
    return stdout.toString().trim().split("\n").at(-1);
  };
  for (const name of ["one", "two", "three"]) write(`${HOME}/run/${name}`, name.repeat(1000));
  write(`${HOME}/done.json`, report(`${HOME}/done/`));
  // Two existing files that differ.
  write(`${HOME}/failed/run/one`, "another");
  write(`${HOME}/failed/run/two`, "another");
  write(`${HOME}/failed.json`, report(`${HOME}/failed/`));
  const directory = `${LONGHAUL_HOME}/state/agent`;
  execFileSync("mkdir", ["-p", "-m", "700", directory]);
  const began = Date.now();
  const counts = execFileSync(HISTORY, [`${directory}/jobs.sqlite`, "ana", String(JOBS), `${HOME}/done.json`, `${HOME}/failed.json`]);
  execFileSync("rm", ["-r", "done", "done.json", "failed", "failed.json", "run"].map((name, index) => (index === 0 ? name : `${HOME}/${name}`)));
  say(`a history of ${JOBS} jobs is made after ${Date.now() - began} ms`);
  return JSON.parse(counts.toString());
}

export async function speed(browser, counts) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  const screen = new Screen(await context.newPage());
  const { page, left } = screen;
  const opened = Date.now();
  await page.goto(longhaul("ui", "--print"));
  await page.getByRole("grid").first().waitFor();
  say(`the page is there after ${Date.now() - opened} ms`);
  demand(!page.url().includes("ticket"), "the ticket stays in the address");

  await left.open("store", `lh://${SERVER}/`);
  const listed = Date.now();
  await left.row("many").dblclick();
  await becomes("all entries", async () => (await left.status()).startsWith("100,000 entries") && !(await left.status()).includes("Loading"), true);
  say(`100,000 entries are there after ${Date.now() - listed} ms`);
  sayFrames("100,000 entries, scrolled", await scrollThrough(left.grid, 9000, '[aria-rowindex="100001"]'));
  await left.button("Up").click();

  await screen.view("Jobs");
  const loaded = Date.now();
  await page.reload();
  const list = page.getByRole("group", { name: "History" });
  await list.getByText(String(JOBS), { exact: true }).waitFor();
  say(`the history of ${JOBS} jobs is there after ${Date.now() - loaded} ms, with the page`);
  const length = () => list.getByRole("listitem").first().getAttribute("aria-setsize");
  const scrolled = Date.now();
  sayFrames(`${JOBS} jobs, scrolled to the oldest`, await scrollThrough(list, 3000, '[href="#jobs/1"]'));
  say(`the oldest of ${JOBS} jobs is in view after ${Date.now() - scrolled} ms`);
  await becomes("all jobs", length, String(JOBS));
  await screen.button("Earlier jobs").waitFor({ state: "detached" });
  for (const state of ["failed", "cancelled"]) {
    const chosen = Date.now();
    await page.getByLabel("Show").selectOption({ label: state });
    await becomes(`those that ${state}`, length, String(counts[state]));
    await becomes(`only ${state}`, async () => [...new Set(await list.locator(".state").allTextContents())], [state]);
    say(`the ${counts[state]} that are ${state} are there after ${Date.now() - chosen} ms`);
  }
  await context.close();

  // The same with a filter that is chosen before anything is loaded.
  const fresh = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  const other = new Screen(await fresh.newPage());
  await other.page.goto(longhaul("ui", "--print"));
  await other.view("Jobs");
  const failed = other.page.getByRole("group", { name: "History" });
  await other.page.getByLabel("Show").selectOption({ label: "failed" });
  await becomes("only failed", async () => [...new Set(await failed.locator(".state").allTextContents())], ["failed"]);
  sayFrames(`${counts.failed} jobs that failed, scrolled to the oldest`, await scrollThrough(failed, 3000, '[href="#jobs/10"]'));
  await becomes("all that failed", () => failed.getByRole("listitem").first().getAttribute("aria-setsize"), String(counts.failed));
  await fresh.close();
}
