// Copies by keyboard, button and dragging, in both directions, to and from each kind of place.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { HOME, HOST, ROOT, SERVER, agent, becomes, demand, job, jobThat, killed, longhaul, pause, read, same, sameFiles, sameTrees, say, write } from "../kit.mjs";

/**
 * Copies 2,000 files and 1 GiB from the server, while the network fails for five seconds and the
 * agent is killed. Returns the agent that was started instead.
 */
export async function longCopy(screen, running) {
  const { page, left, right } = screen;
  const origin = new URL(page.url()).origin;
  await screen.view("Files");
  await left.open("store", `lh://${SERVER}/`);
  await right.open("home", `${HOME}/`);
  // Selects both and copies them to the other pane by keyboard.
  await left.filter.fill("e");
  await left.filter.press("Shift+Tab");
  await left.focus();
  await becomes("what has an e", () => left.names(), ["open", "tree", "large"]);
  await left.row("tree").click();
  await page.keyboard.press("Shift+ArrowDown");
  same(await left.selected(), ["tree", "large"], "both");
  await page.keyboard.press("F5");
  await screen.asks("Copy 2 entries");
  await screen.accessible("copy");
  const id = await screen.startCopy();
  await screen.view("Jobs");
  await page.getByRole("progressbar", { name: `Progress of job ${id}`, exact: true }).first().waitFor();
  await jobThat(id, "100 MB", (one) => (one.progress?.bytes ?? 0) > 100e6);
  await page.locator(`a[href="#jobs/${id}"]`).click();
  await page.getByRole("img", { name: new RegExp(`^Plot of the rate of job ${id} `) }).waitFor();
  await screen.accessible("jobs");
  await page.getByRole("complementary").getByRole("link", { name: "Close", exact: true }).click();
  await page.getByRole("complementary").waitFor({ state: "detached" });

  const way = execFileSync("ip", ["route", "show", SERVER]).toString().trim().split(/\s+/);
  execFileSync("ip", ["route", "replace", "blackhole", SERVER]);
  await pause(5000);
  execFileSync("ip", ["route", "replace", ...way]);
  say("the network was away for 5 s");
  const before = job(id)?.progress?.bytes ?? 0;
  await jobThat(id, "it goes on", (one) => one.ended !== null || (one.progress?.bytes ?? 0) > before + 50e6);
  say("it goes on");

  await killed(running);
  await page.getByText(/not connected/i).first().waitFor();
  say("the agent is killed, and the page says that it is away");
  const next = await agent();
  const address = longhaul("ui", "--print");
  say(`another agent: ${new URL(address).origin === origin ? "the same address" : "another address"}`);
  await screen.load(address);
  await screen.view("Jobs");
  const done = await jobThat(id, "it ends", (one) => one.ended !== null);
  demand(done.state === "done", JSON.stringify(done));
  await screen.shows(id, "done");
  say(`done after ${done.attempts} attempts`);
  sameTrees(path.join(ROOT, "tree"), path.join(HOME, "tree"));
  sameFiles(path.join(ROOT, "large"), path.join(HOME, "large"));
  say("every file is the same");
  fs.rmSync(path.join(HOME, "large"));
  return next;
}

/** Copies the result to the ssh host, and small files in both directions. */
export async function copies(screen) {
  const { page, left, right, dialog } = screen;
  await screen.view("Files");
  await left.open("host", "store.example:");
  await right.open("home", `${HOME}/`);

  await right.row("tree").click();
  await right.tool("Copy").click();
  await screen.asks("Copy 1 entry");
  await dialog.getByText("store.example:./", { exact: true }).waitFor();
  const tree = await screen.startCopy();
  await screen.said(`Job ${tree} was submitted.`);
  await done(tree);
  sameTrees(path.join(ROOT, "tree"), path.join(HOST, "tree"));
  // The pane shows the new entries.
  await left.row("tree").waitFor();
  say("2,000 files are at the host by ssh, by the button");

  write(`${HOST}/give/from-host.txt`, "from the host");
  write(`${HOST}/give/inner/there.txt`, "there");
  write(`${HOME}/take/old.txt`, "old");
  await left.button("Reload").click();
  await left.row("give").waitFor();
  await left.enter("give");
  await right.button("Reload").click();
  await right.row("take").waitFor();
  await right.enter("take");
  const drag = async (from, to) => {
    await from.dragTo(to);
    await screen.asks("Copy 1 entry");
  };
  // Dragging over the other list and away again opens no dialog.
  const isTarget = () => right.grid.evaluate((grid) => grid.classList.contains("drop"));
  await left.row("from-host.txt").hover();
  await page.mouse.down();
  await right.grid.hover();
  await right.grid.hover();
  await becomes("the list takes it", isTarget, true);
  await page.getByRole("heading", { name: "Longhaul" }).hover();
  await page.getByRole("heading", { name: "Longhaul" }).hover();
  await becomes("the list does not take it any more", isTarget, false);
  await page.mouse.up();
  same(await dialog.count(), 0, "dialogs");

  await drag(left.row("from-host.txt"), right.grid);
  await screen.answer("Cancel");
  await screen.closed();
  await drag(left.row("from-host.txt"), right.grid);
  await page.keyboard.press("Escape");
  await screen.closed();
  await drag(left.row("from-host.txt"), right.grid);
  await dialog.getByText("store.example:give/from-host.txt", { exact: true }).waitFor();
  await dialog.getByText(`${HOME}/take/`, { exact: true }).waitFor();
  await done(await screen.startCopy());
  same(read(HOME, "take/from-host.txt"), "from the host", "what was dragged from the host");
  await right.row("from-host.txt").waitFor();

  await drag(right.row("old.txt"), left.row("inner"));
  await dialog.getByText("store.example:give/inner/", { exact: true }).waitFor();
  await dialog.getByLabel("Label (optional)").fill("by dragging");
  await dialog.getByLabel("Replace files that exist and differ").check();
  await dialog.getByLabel("Compare the content of existing files by checksum").check();
  const labelled = await screen.startCopy();
  const { request } = await done(labelled);
  same([request.label, request.options.overwrite, request.options.checksum], ["by dragging", true, true], "what was asked for");
  same(read(HOST, "give/inner/old.txt"), "old", "what was dragged to the host");
  say("dragged from the host, and to a directory of it");

  // Copies to the server where writing is granted.
  await left.open("store", `lh://${SERVER}/`);
  await left.enter("open");
  await right.row("old.txt").click();
  await right.focus();
  await page.keyboard.press("F5");
  await screen.asks("Copy 1 entry");
  await done(await screen.startCopy());
  same(read(ROOT, "open/old.txt"), "old", "what was copied to the server");

  // Copies that make no sense are refused.
  await left.open("home", `${HOME}/`);
  await left.enter("take");
  await left.row("old.txt").click();
  await left.tool("Copy").click();
  await screen.said("They are already there");
  await left.button("Up").click();
  await left.row("take").click();
  await left.tool("Copy").click();
  await screen.said("A directory cannot be copied into itself.");
  say("what makes no sense is told");
  return { labelled };
}

/** Waits until a job is done, and returns it. */
export async function done(id) {
  const one = await jobThat(id, "it ends", (each) => each.ended !== null);
  demand(one.state === "done", JSON.stringify(one));
  return one;
}
