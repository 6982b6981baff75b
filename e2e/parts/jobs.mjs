// Pauses, resumes, cancels, retries and removes jobs; shows their details, the history and filters.
import { HOME, HOST, ROOT, SERVER, becomes, demand, eventually, job, jobThat, longhaul, read, same, sameTrees, say, write } from "../kit.mjs";
import { done } from "./copies.mjs";

export async function jobs(screen, { labelled }) {
  await stopAndGo(screen);
  await outOfReach(screen);
  await failing(screen);
  await many(screen);
  await inParts(screen);
  await history(screen, labelled);
}

/** Copies the selection of the left pane. */
async function copy(screen) {
  await screen.left.tool("Copy").click();
  await screen.dialog.waitFor();
  const id = await screen.startCopy();
  await screen.view("Jobs");
  return id;
}

/** Uses all actions of a running job, and of an ended one. */
async function stopAndGo(screen) {
  const { page, left, right } = screen;
  await screen.view("Files");
  await left.open("store", `lh://${SERVER}/`);
  await right.open("home", `${HOME}/`);
  await right.enter("take");
  await left.row("large").click();
  const id = await copy(screen);
  await jobThat(id, "it runs", (one) => (one.progress?.bytes ?? 0) > 10e6);
  await screen.ask("Pause", id);
  await screen.shows(id, "paused");
  const { progress } = await jobThat(id, "paused", (one) => one.state === "paused");
  await screen.ask("Resume", id);
  await screen.shows(id, "running");
  await jobThat(id, "it goes on", (one) => one.state === "running" && (one.progress?.bytes ?? 0) > (progress?.bytes ?? 0));
  // The details have the same buttons.
  await page.locator(`a[href="#jobs/${id}"]`).click();
  const details = page.getByRole("complementary", { name: `Details of job ${id}` });
  await details.getByRole("button", { name: `Cancel: job ${id}`, exact: true }).click();
  await details.locator(".state").getByText("cancelled", { exact: true }).waitFor();
  same((await jobThat(id, "it ends", (one) => one.ended !== null)).state, "cancelled", "the job");
  await screen.ask("Retry", id);
  await jobThat(id, "it runs again", (one) => one.state === "running");
  await screen.ask("Cancel", id);
  await screen.shows(id, "cancelled");
  await screen.ask("Remove from history", id);
  await screen.job(id).waitFor({ state: "detached" });
  await details.waitFor({ state: "detached" });
  same(job(id), undefined, "what was removed from the history");
  say("paused, resumed, cancelled, tried again, removed from the history");
}

/** If a server does not answer, the job waits and shows until when. */
async function outOfReach(screen) {
  const { page, left, right } = screen;
  await screen.view("Files");
  await left.open("home", `${HOME}/`);
  await left.enter("take");
  await right.place.selectOption({ label: "nobody" });
  await right.region.getByRole("alert").waitFor();
  await left.row("old.txt").click();
  const id = await copy(screen);
  await screen.shows(id, "waiting");
  await screen.job(id).getByText(/retries at/).waitFor();
  const before = job(id).attempts;
  await screen.ask("Retry", id);
  await jobThat(id, "it is tried again at once", (one) => one.attempts > before && one.state === "waiting");
  await screen.shows(id, "waiting");
  await screen.ask("Pause", id);
  await screen.shows(id, "paused");
  await screen.ask("Cancel", id);
  await screen.shows(id, "cancelled");
  await page.locator(`a[href="#jobs/${id}"]`).click();
  await page.getByRole("complementary").getByText("There is no report yet.").or(page.getByRole("complementary").locator(".error-text")).first().waitFor();
  await page.getByRole("complementary").getByRole("link", { name: "Close", exact: true }).click();
  say("a job whose server does not answer waits");
}

/** If an existing file differs, the job fails and names it. */
async function failing(screen) {
  const { page, left, right } = screen;
  write(`${HOST}/other/old.txt`, "another one");
  await screen.view("Files");
  await left.open("home", `${HOME}/`);
  await left.enter("take");
  await right.open("host", "store.example:");
  await right.enter("other");
  await left.row("old.txt").click();
  const id = await copy(screen);
  await screen.shows(id, "failed");
  same(read(HOST, "other/old.txt"), "another one", "what was there");
  const { attempts } = job(id);
  await screen.ask("Retry", id);
  await jobThat(id, "it fails again", (one) => one.attempts > attempts && one.state === "failed");
  await screen.shows(id, "failed");
  await page.locator(`a[href="#jobs/${id}"]`).click();
  const details = page.getByRole("complementary", { name: `Details of job ${id}` });
  await details.getByText("Not copied (1)").click();
  await details.getByText("already exists at the destination").waitFor();
  await details.getByRole("link", { name: "Close", exact: true }).click();
  say("a job that fails names what was not copied");
}

/** Copies more sources than are shown at once. */
async function many(screen) {
  const { page, left, right } = screen;
  await screen.view("Files");
  await left.open("home", `${HOME}/`);
  await left.enter("tree");
  await right.open("home", `${HOME}/`);
  await right.enter("take");
  // 17, 117, 217 to 1917, and 170 to 179, 1170 to 1179 and so on.
  await left.filter.fill("170");
  await left.focus();
  await page.keyboard.press("Control+a");
  const names = await left.names();
  await left.filter.fill("17");
  await left.focus();
  await page.keyboard.press("Control+a");
  const number = Number(/^([\d,]+) of/.exec(await left.status())[1]);
  demand(names.length < number && number > 20, `${number} files have 17 in their names`);
  await left.tool("Copy").click();
  await screen.asks(`Copy ${number} entries`);
  await screen.dialog.getByText(`and ${number - 20} more`).waitFor();
  const id = await screen.startCopy();
  await done(id);
  await screen.view("Jobs");
  await page.locator(`a[href="#jobs/${id}"]`).click();
  const details = page.getByRole("complementary", { name: `Details of job ${id}` });
  const last = `${HOME}/tree/${(await job(id)).request.sources.at(-1).split("/").at(-1)}`;
  same(await details.getByText(last, { exact: true }).isVisible(), false, "the last source is in view");
  await details.getByText(`and ${number - 20} more`).click();
  await details.getByText(last, { exact: true }).waitFor();
  await details.getByText("Verified by BLAKE3:").waitFor();
  await screen.accessible("details");
  await details.getByRole("link", { name: "Close", exact: true }).click();
  await details.waitFor({ state: "detached" });
  say(`${number} sources in one job`);
}

/** Submits a split job at the command line; the page shows its parts. */
async function inParts(screen) {
  const { page } = screen;
  const { id } = JSON.parse(longhaul("submit", "--json", "--split", "3", "-r", `lh://${SERVER}/tree`, `${HOME}/parts/`));
  await screen.view("Jobs");
  await page.locator(`a[href="#jobs/${id}"]`).click();
  const details = page.getByRole("complementary", { name: `Details of job ${id}` });
  const parts = details.locator("summary", { hasText: "of 3 parts done" });
  await parts.click();
  await becomes("three parts", () => details.locator(".parts li").count(), 3);
  await done(id);
  await parts.getByText("3 of 3 parts done").waitFor();
  await becomes("all parts are done", () => details.locator(".parts .state").allTextContents(), ["done", "done", "done"]);
  sameTrees(`${ROOT}/tree`, `${HOME}/parts/tree`);
  await details.getByRole("link", { name: "Close", exact: true }).click();
  await details.waitFor({ state: "detached" });
  say("a tree in three parts");
}

/** Pages back through the history, and filters it by state. */
async function history(screen, labelled) {
  const { page } = screen;
  await screen.view("Jobs");
  const list = page.getByRole("group", { name: "History" });
  const length = async () => Number(await list.getByRole("listitem").first().getAttribute("aria-setsize"));
  const before = await length();
  await screen.button("Earlier jobs").click();
  await eventually("earlier jobs", async () => (await length()) > before);
  const show = page.getByLabel("Show");
  for (const [label, state] of [["failed", "failed"], ["cancelled", "cancelled"], ["done", "done"]]) {
    await show.selectOption({ label });
    await becomes(`only ${label}`, async () => [...new Set(await list.locator(".state").allTextContents())], [state]);
  }
  await show.selectOption({ label: "All" });
  await screen.job(labelled).getByText("by dragging").waitFor();
  say("the history goes back, and shows what ended in one way alone");
}
