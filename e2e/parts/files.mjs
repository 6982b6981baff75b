// Creates, renames and removes in each kind of place, by keys and buttons; sorts, filters and
// selects.
import { HOME, HOST, ROOT, SERVER, becomes, demand, is, read, same, say, write } from "../kit.mjs";

/** Creates the files that `work` changes and `look` shows. */
export function desk(directory) {
  write(`${directory}/desk/a.txt`, "0123456789", "2001-01-01");
  write(`${directory}/desk/B.txt`, "01234", "2003-01-01");
  write(`${directory}/desk/c.txt`, "01234567890123456789", "2002-01-01");
  write(`${directory}/desk/.hidden`, "");
  write(`${directory}/desk/inner/deep.txt`, "deep");
}

export async function files(screen) {
  for (const directory of [HOME, HOST, `${ROOT}/open`]) desk(directory);
  await screen.view("Files");
  await screen.left.open("store", `lh://${SERVER}/`);
  await screen.accessible("files");
  await refusals(screen);

  await screen.right.open("home", `${HOME}/`);
  await screen.right.enter("desk");
  await look(screen, screen.right);
  await work(screen, screen.right, `${HOME}/desk`, false);
  await screen.left.enter("open");
  await screen.left.enter("desk");
  await work(screen, screen.left, `${ROOT}/open/desk`, false);
  await screen.left.open("host", "store.example:");
  await screen.left.enter("desk");
  await look(screen, screen.left);
  await work(screen, screen.left, `${HOST}/desk`, true);
}

/** If only reading is granted, the page says so and nothing changes. */
async function refusals(screen) {
  const { left } = screen;
  await left.tool("New directory").click();
  await screen.asks("New directory");
  await screen.dialog.getByLabel("Name", { exact: true }).fill("mine");
  await screen.answer("Make directory");
  await screen.dialog.getByRole("alert").filter({ hasText: "mine" }).waitFor();
  await screen.answer("Cancel");
  await screen.closed();
  await left.row("large").click();
  await left.tool("Remove").click();
  await screen.asks("Remove 1 entry?");
  await screen.answer("Remove");
  await screen.closed();
  await screen.said("Stopped at large: ");
  demand(!is(ROOT, "mine") && is(ROOT, "large"), "something changed that was refused");
  say("what the server refuses is told");
}

/** Uses columns, filter, hidden files, selection with the mouse, and the path. */
async function look(screen, pane) {
  const { page } = screen;
  await becomes("names", () => pane.names(), ["inner", "a.txt", "B.txt", "c.txt"]);
  const orders = {
    Size: ["inner", "B.txt", "a.txt", "c.txt"],
    Modified: ["inner", "a.txt", "c.txt", "B.txt"],
    Name: ["inner", "a.txt", "B.txt", "c.txt"],
  };
  for (const [column, names] of Object.entries(orders)) {
    const heading = pane.grid.getByRole("button", { name: column, exact: true });
    const backwards = [names[0], ...names.slice(1).reverse()];
    const number = ["Name", "Size", "Modified"].indexOf(column);
    await heading.click();
    await becomes(`by ${column}`, () => pane.names(), names);
    same((await pane.sorted())[number], "ascending", "the column says");
    await heading.click();
    await becomes(`by ${column}, backwards`, () => pane.names(), backwards);
    same((await pane.sorted())[number], "descending", "the column says");
    await heading.click();
    await becomes(`by ${column} again`, () => pane.names(), names);
  }

  await pane.filter.fill("B.");
  await becomes("filtered", () => pane.names(), ["B.txt"]);
  demand((await pane.status()).startsWith("1 of 5 entries"), await pane.status());
  await pane.filter.fill("nothing like it");
  await pane.grid.getByText("Nothing here matches.").waitFor();
  await pane.filter.fill("");
  await pane.hidden.check();
  await becomes("hidden files", () => pane.names(), ["inner", ".hidden", "a.txt", "B.txt", "c.txt"]);
  await pane.hidden.uncheck();
  await becomes("no hidden files", () => pane.names(), ["inner", "a.txt", "B.txt", "c.txt"]);

  await pane.row("a.txt").click();
  same(await pane.selected(), ["a.txt"], "a click");
  await pane.row("c.txt").click({ modifiers: ["Control"] });
  same(await pane.selected(), ["a.txt", "c.txt"], "a click with Ctrl");
  demand((await pane.status()).includes("2 selected, 30 B"), await pane.status());
  await pane.row("inner").click();
  await pane.row("B.txt").click({ modifiers: ["Shift"] });
  same(await pane.selected(), ["inner", "a.txt", "B.txt"], "a click with Shift");

  const location = await pane.location();
  await pane.enter("inner");
  await becomes("inside", () => pane.names(), ["deep.txt"]);
  await pane.button("Up").click();
  await pane.at(location);
  await becomes("where it came from", () => pane.cursor(), "inner");
  await pane.enter("inner");
  await pane.region.getByRole("navigation").getByRole("button", { name: "desk", exact: true }).click();
  await pane.at(location);

  // Changes by others appear after a reload.
  const file = `${location.startsWith("store.example:") ? HOST : HOME}/desk/new.txt`;
  write(file, "new");
  await pane.button("Reload").click();
  await pane.row("new.txt").waitFor();

  await pane.tool("Keys").click();
  await screen.asks("Keys in the file lists");
  await screen.accessible("keys");
  await screen.answer("Close");
  await screen.closed();
  await pane.tool("Keys").click();
  await screen.asks("Keys in the file lists");
  await page.keyboard.press("Escape");
  await screen.closed();
  say(`${location}: sorted, filtered, selected`);
}

/** Creates, renames and removes, with the dialogs and the refusals. */
async function work(screen, pane, disk, byKeys) {
  const { page, dialog } = screen;
  const name = dialog.getByLabel("Name", { exact: true });
  const refused = async (words) => { await dialog.getByRole("alert").filter({ hasText: words }).waitFor(); };
  const left = async (how) => {
    if (how === "Escape") await page.keyboard.press("Escape");
    else await screen.answer(how);
    await screen.closed();
  };
  const begin = async (tool, key, title) => {
    if (byKeys) {
      await pane.focus();
      await page.keyboard.press(key);
    } else {
      await pane.tool(tool).click();
    }
    await screen.asks(title);
  };
  const make = () => begin("New directory", "F7", "New directory");
  const rename = async (from) => {
    await pane.row(from).click();
    await begin("Rename", "F2", `Rename ${from}`);
  };
  const remove = (title) => begin("Remove", "Delete", title);

  await make();
  await name.fill("..");
  await screen.answer("Make directory");
  await refused("A name cannot be empty");
  if (byKeys) await screen.accessible("new directory");
  await left("Cancel");
  await make();
  await left("Escape");
  await make();
  await name.fill("made");
  await screen.answer("Make directory");
  await screen.closed();
  demand(is(disk, "made"), `${disk}/made was not made`);
  await becomes("on what was made", () => pane.cursor(), "made");
  await make();
  await name.fill("made");
  await screen.answer("Make directory");
  await refused("exists");
  await left("Cancel");

  await rename("a.txt");
  await left("Cancel");
  await rename("a.txt");
  if (byKeys) await screen.accessible("rename");
  await left("Escape");
  await rename("a.txt");
  await name.fill("inner/a.txt");
  await screen.answer("Rename");
  await refused("A name cannot be empty");
  await name.fill("B.txt");
  await screen.answer("Rename");
  await refused("exists");
  demand(is(disk, "a.txt") && read(disk, "B.txt") === "01234", "it was replaced without leave");
  await dialog.getByLabel("Replace an existing entry with this name").check();
  await screen.answer("Rename");
  await screen.closed();
  demand(!is(disk, "a.txt") && read(disk, "B.txt") === "0123456789", "it was not replaced");
  // The name without its ending is selected, so typing replaces it.
  await rename("B.txt");
  await page.keyboard.type("d");
  await page.keyboard.press("Enter");
  await screen.closed();
  await pane.row("d.txt").waitFor();
  demand(is(disk, "d.txt"), "it was not renamed");

  await pane.row("c.txt").click();
  await remove("Remove 1 entry?");
  await dialog.getByText("c.txt").waitFor();
  if (byKeys) await screen.accessible("remove");
  await left("Cancel");
  await remove("Remove 1 entry?");
  await left("Escape");
  demand(is(disk, "c.txt"), "it was removed without an answer");
  await remove("Remove 1 entry?");
  await screen.answer("Remove");
  await screen.said("Removed 1 entry.");
  await pane.row("c.txt").waitFor({ state: "detached" });
  demand(!is(disk, "c.txt"), "it was not removed");
  await pane.row("made").click();
  await pane.row("inner").click({ modifiers: ["Control"] });
  await remove("Remove 2 entries?");
  await screen.answer("Remove");
  await screen.said("Removed 2 entries.");
  await pane.row("inner").waitFor({ state: "detached" });
  demand(!is(disk, "made") && !is(disk, "inner") && is(disk, "d.txt"), "something else was removed");
  say(`${await pane.location()}: made, renamed and removed by ${byKeys ? "keys" : "buttons"}`);
}
