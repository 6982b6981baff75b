// The page on a phone with dark colours in German, and in a browser without a session.
import { Screen, becomes, demand, longhaul, say } from "../kit.mjs";

export async function phone(browser, used, ran) {
  const context = await browser.newContext({ viewport: { width: 360, height: 740 }, colorScheme: "dark", locale: "de-DE" });
  await used.watch(context);
  const screen = new Screen(await context.newPage(), ran);
  const { page } = screen;
  await screen.load(longhaul("ui", "--print"));
  await page.getByRole("grid").first().waitFor();
  for (const [view, name] of [["Dateien", "phone"], ["Aufträge", "phone, jobs"], ["Orte", "phone, places"]]) {
    await page.getByRole("link", { name: view, exact: true }).click();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    demand(wide <= 360, `${name}: ${wide} px wide`);
    await screen.accessible(name);
  }
  await page.locator("header select").first().selectOption({ label: "English" });
  await screen.view("Files");
  for (const [button, shown, other] of [["Right pane", screen.right, screen.left], ["Left pane", screen.left, screen.right]]) {
    await screen.button(button).click();
    await becomes(button, async () => [await shown.grid.isVisible(), await other.grid.isVisible()], [true, false]);
  }
  await screen.leave();
  await context.close();
  say("a phone shows one pane, or the other");
}

export async function stranger(browser) {
  const context = await browser.newContext({ locale: "en-GB" });
  const page = await context.newPage();
  const address = longhaul("ui", "--print");
  await page.goto(new URL(address).origin);
  await page.getByRole("heading", { name: "Not signed in" }).waitFor();
  await page.goto("about:blank");
  await page.goto(address);
  await page.getByRole("grid").first().waitFor();
  await context.clearCookies();
  // A ticket is valid once.
  await page.goto("about:blank");
  await page.goto(address);
  await page.getByText("The address that was opened is no longer valid.").waitFor();
  await context.close();
  say("without a ticket, or with one that was used, nobody is let in");
}
