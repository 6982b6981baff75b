// Uses every key of the lists, in a directory of 2,000 files.
import { SERVER, becomes, demand, same, say } from "../kit.mjs";

export async function keys(screen, used) {
  const { page, left, right } = screen;
  const press = async (key) => { await page.keyboard.press(key); };
  await screen.view("Files");
  await left.open("store", `lh://${SERVER}/`);
  await left.focus();

  await press("Home");
  await becomes("the first", () => left.cursor(), "many");
  await press("ArrowDown");
  await press("ArrowDown");
  await becomes("the third", () => left.cursor(), "tree");
  same(await left.selected(), ["tree"], "moving selects");
  await press("ArrowUp");
  await press("ArrowDown");
  await press("Enter");
  await left.at(`lh://${SERVER}/tree`);
  await becomes("all of them", async () => (await left.status()).startsWith("2,000 entries"), true);

  // Names are sorted as text: 1, 10, 100, 1000, 1001, ...
  await press("Home");
  await becomes("Home", () => left.cursor(), "1");
  await press("End");
  await becomes("End", () => left.cursor(), "999");
  await press("PageUp");
  await becomes("PageUp", async () => Number(await left.cursor()) < 999, true);
  await press("PageDown");
  await becomes("PageDown", () => left.cursor(), "999");
  await press("Home");

  await press("Control+ArrowDown");
  same([await left.cursor(), await left.selected()], ["10", ["1"]], "Ctrl moves without selecting");
  await press("Control+ArrowUp");
  same([await left.cursor(), await left.selected()], ["1", ["1"]], "Ctrl moves back");
  await press("Shift+ArrowDown");
  await press("Shift+ArrowDown");
  same(await left.selected(), ["1", "10", "100"], "Shift selects a range");
  await press("Shift+ArrowUp");
  same(await left.selected(), ["1", "10"], "Shift takes back");
  await press("Space");
  same(await left.selected(), ["1"], "Space deselects");
  await press("Space");
  same(await left.selected(), ["1", "10"], "Space selects");
  await press("Control+a");
  demand((await left.status()).includes("2,000 selected, 7.8 MiB"), await left.status());
  await press("Escape");
  same(await left.selected(), [], "Escape selects nothing");
  await becomes("the status", async () => (await left.status()).includes("selected"), false);

  for (const [key, column] of [["2", 1], ["3", 2], ["1", 0]]) {
    await press(key);
    same((await left.sorted())[column], "ascending", `the key ${key}`);
    await press(key);
    same((await left.sorted())[column], "descending", `the key ${key} again`);
  }
  await press("1");
  await press("/");
  await page.keyboard.type("199");
  await becomes("filtered", () => left.names(), ["199", "1199", "1990", "1991", "1992", "1993", "1994", "1995", "1996", "1997", "1998", "1999"].sort());
  await left.filter.fill("");
  await left.focus();
  await press("Backspace");
  await left.at(`lh://${SERVER}/`);
  await becomes("where it came from", () => left.cursor(), "tree");

  await press("Tab");
  await becomes("the other pane", () => right.isFocused(), true);
  await press("Tab");
  await becomes("the first pane", () => left.isFocused(), true);
  await press("Shift+Tab");
  demand(!(await left.isFocused()) && !(await right.isFocused()), "Shift Tab stays in the lists");
  demand(await left.region.evaluate((region) => region.contains(document.activeElement)), "Shift Tab leads elsewhere than before the list");
  await left.focus();
  await press("F6");
  await becomes("past the lists", () => page.evaluate(() => document.activeElement?.getAttribute("aria-label")), "Queue");

  // Keys open dialogs, and Escape returns the focus to the list.
  await left.focus();
  for (const [key, title] of [["F2", "Rename tree"], ["F5", "Copy 1 entry"], ["F7", "New directory"], ["Delete", "Remove 1 entry?"]]) {
    await press(key);
    await screen.asks(title);
    await press("Escape");
    await screen.closed();
    await becomes(`the list has the focus after ${key}`, () => left.isFocused(), true);
  }

  await left.tool("Keys").click();
  await screen.asks("Keys in the file lists");
  const lines = await screen.dialog.locator("kbd").allTextContents();
  used.keys(lines);
  await screen.answer("Close");
  await screen.closed();
  say(`the keys do what they should: ${lines.length} lines of the dialog`);
}
