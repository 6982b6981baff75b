// Language, colours, and the link that skips the header.
import { becomes, demand, say } from "../kit.mjs";

export async function settings(screen) {
  const { page } = screen;
  const language = page.locator("header select").first();
  const theme = page.locator("header select").last();
  const heading = () => page.getByRole("navigation").first().getByRole("link").first().textContent();
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);

  await language.selectOption({ label: "Deutsch" });
  await becomes("German", heading, "Dateien");
  demand((await page.evaluate(() => document.documentElement.lang)) === "de", "the page does not say that it is German");
  demand((await page.evaluate(() => localStorage.getItem("longhaul.language"))) === '"de"', "the language is not kept");
  await language.selectOption({ label: "English" });
  await becomes("English", heading, "Files");

  await theme.selectOption({ label: "Light" });
  const light = await background();
  await theme.selectOption({ label: "Dark" });
  demand((await background()) !== light, "dark is as light");
  await theme.selectOption({ label: "Match the system" });
  demand((await background()) === light, "the system's colours are light ones");

  // The first link that Tab reaches skips the header.
  await page.evaluate(() => { document.activeElement?.blur(); });
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await becomes("the content has the focus", () => page.evaluate(() => document.activeElement?.id), "content");
  say("languages and colours change");
}
