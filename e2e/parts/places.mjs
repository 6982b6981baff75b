// Adds, tests, changes and removes places, with the refusals.
import { SERVER, becomes, demand, longhaul, say } from "../kit.mjs";

export async function places(screen) {
  const { page } = screen;
  await screen.view("Places");
  const form = page.getByRole("form", { name: "Add a place" });
  const add = async (name, kind, location) => {
    await form.getByLabel("Name", { exact: true }).fill(name);
    await form.getByLabel("Kind").selectOption({ label: kind });
    await form.getByLabel("Location").fill(location);
    await form.getByRole("button", { name: "Add", exact: true }).click();
  };
  const refused = async (words) => becomes(words, () => form.getByRole("alert").textContent(), words);
  const known = () => longhaul("places", "--json");

  await add("", "Longhaul server", `lh://${SERVER}/`);
  await refused("Enter a name.");
  await add("store", "Longhaul server", "store.example");
  await refused("An address, such as lh://dtn.example/");
  await add("store", "Host over ssh", "lh://store.example/");
  await refused("A host and a path, such as ana@dtn.example:runs/");
  await add("store", "Directory on this machine", "data");
  await refused("An absolute path, such as /data/");
  await add("store", "Longhaul server", `lh://${SERVER}/`);
  await screen.said("The place store was added.");
  await add("store", "Host over ssh", "store.example:");
  await refused("A place with this name already exists.");
  await add("host", "Host over ssh", "store.example:");
  await screen.said("The place host was added.");
  // Nothing listens on port 1.
  await add("nobody", "Longhaul server", `lh://${SERVER}:1/`);
  await screen.said("The place nobody was added.");
  await add("dev", "Directory on this machine", "/dev/");
  await screen.said("The place dev was added.");
  demand(known().includes("store.example:"), known());

  const test = async (name, words) => {
    await screen.button(`Test ${name}`).click();
    const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
    await row.getByRole("status").filter({ hasText: words }).waitFor();
  };
  await test("home", "Works");
  await test("dev", "Works: it answers");
  await test("store", "Works: it answers");
  await test("host", "Works: it answers");
  say("the server and the host by ssh answer");
  await test("nobody", "Does not work: ");

  // Changes keep the name, and a cancelled change has no effect.
  const changing = page.getByRole("form", { name: "Change the place nobody" });
  const change = async (location) => {
    await screen.button("Change nobody").click();
    await changing.getByLabel("Location").fill(location);
  };
  await change("lh://elsewhere.example/");
  await changing.getByRole("button", { name: "Cancel" }).click();
  await form.waitFor();
  demand(!known().includes("elsewhere.example"), known());
  await change(`lh://${SERVER}/`);
  demand(!(await changing.getByLabel("Name", { exact: true }).isEditable()), "the name of a place that is changed can be edited");
  await changing.getByRole("button", { name: "Save" }).click();
  await screen.said("The place nobody was changed.");
  await test("nobody", "Works: it answers");
  // Later parts need a place that does not answer.
  await change(`lh://${SERVER}:1/`);
  await changing.getByRole("button", { name: "Save" }).click();
  await form.waitFor();
  await test("nobody", "Does not work: ");
  await screen.accessible("places");

  const removal = async () => {
    await screen.button("Remove dev").click();
    await screen.asks("Remove the place dev?");
  };
  await removal();
  await screen.answer("Cancel");
  await screen.closed();
  await removal();
  await page.keyboard.press("Escape");
  await screen.closed();
  demand(known().includes("dev"), "a place was removed without an answer");
  await removal();
  await screen.answer("Remove");
  await screen.said("The place dev was removed.");
  await screen.button("Remove dev").waitFor({ state: "detached" });
  demand(!known().includes('"dev"'), known());
  say("places are added, refused, tested, changed and removed");
}
