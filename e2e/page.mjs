// Tests the page in a browser in the node `client` of a lab, against a server and an ssh host in
// the node `server`. Covers every use of the page, while the network fails for five seconds and the
// agent is killed. `run.sh` starts it. Prints a line for each step and ends at the first failure.
// At the end it also fails if a button, choice or key of the page was not used (`used.mjs`), or if
// a handler never ran (`ran.mjs`).
import path from "node:path";
import { chromium } from "playwright-core";
import { CHROMIUM, SERVER, Screen, TARGET, agent, demand, longhaul, say } from "./kit.mjs";
import { copies, longCopy } from "./parts/copies.mjs";
import { files } from "./parts/files.mjs";
import { jobs } from "./parts/jobs.mjs";
import { keys } from "./parts/keys.mjs";
import { phone, stranger } from "./parts/phone.mjs";
import { places } from "./parts/places.mjs";
import { settings } from "./parts/settings.mjs";
import { fill, speed } from "./parts/speed.mjs";
import { Ran } from "./ran.mjs";
import { Used } from "./used.mjs";

const counts = fill();
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
let running = await agent();
const used = new Used();
const ran = new Ran();
const faults = [];
let screen;
try {
  longhaul("ls", "--accept-new", `lh://${SERVER}/`);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  await used.watch(context);
  screen = new Screen(await context.newPage(), ran);
  screen.page.on("pageerror", (error) => faults.push(error.message));
  screen.page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) faults.push(message.text());
  });
  screen.page.on("request", (request) => {
    if (!request.url().startsWith("http://127.0.0.1:")) faults.push(`asks ${request.url()}`);
  });
  await screen.load(longhaul("ui", "--print"));
  await screen.page.getByRole("grid").first().waitFor();

  await places(screen);
  await speed(browser, counts);
  await settings(screen);
  await files(screen);
  await keys(screen, used);
  running = await longCopy(screen, running);
  await jobs(screen, await copies(screen));
  await phone(browser, used, ran);
  await stranger(browser);
  await screen.leave();
  faults.push(...used.faults(), ...ran.faults(path.join(TARGET, "web-map")));
  demand(faults.length === 0, faults.join("\n"));
  say(`all of it holds; ${used.controls} controls and choices and ${used.pressed} keys were used, and every handler`);
} catch (error) {
  await screen?.page.screenshot({ path: path.join(TARGET, "e2e.png") }).catch(() => undefined);
  throw error;
} finally {
  await browser.close();
  running.kill("SIGKILL");
}
