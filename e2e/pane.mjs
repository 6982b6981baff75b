// Page object of one of the two panes.

export class Pane {
  constructor(page, side) {
    this.page = page;
    this.grid = page.locator(`#list-${side}`);
    this.region = page.getByRole("region", { name: side === "left" ? "Left pane" : "Right pane", exact: true });
    this.place = this.region.getByLabel("Place", { exact: true });
    this.filter = this.region.getByLabel("Filter names", { exact: true });
    this.hidden = this.region.getByLabel("Hidden files", { exact: true });
  }

  button(name) {
    return this.region.getByRole("button", { name, exact: true });
  }

  /** Returns a button of the toolbar. Its text also contains its key. */
  tool(name) {
    return this.region.getByRole("toolbar").getByRole("button", { name });
  }

  /** Chooses a place and waits until its directory is shown. */
  async open(place, root) {
    await this.place.selectOption({ label: place });
    await this.at(root);
  }

  /** Waits until the entries of this location are shown. */
  async at(location) {
    await this.page.locator(`#${await this.grid.getAttribute("id")}[aria-busy=false][aria-label=${JSON.stringify(`Files in ${location}`)}]`).waitFor();
  }

  row(name) {
    const exactly = new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
    return this.grid.locator(".list-body [role=row]").filter({ has: this.page.locator(".name > bdi", { hasText: exactly }) });
  }

  /** Opens a directory that is in view. */
  async enter(name) {
    const location = await this.location();
    await this.row(name).dblclick();
    await this.at(`${location}${/[/:]$/.test(location) ? "" : "/"}${name}`);
  }

  async location() {
    return (await this.grid.getAttribute("aria-label")).replace(/^Files in /, "");
  }

  /** Returns the names in view, in the order of their rows. */
  names() {
    return this.grid.evaluate((grid) =>
      [...grid.querySelectorAll(".list-body [role=row]")]
        .sort((one, other) => one.ariaRowIndex - other.ariaRowIndex)
        .map((row) => row.querySelector(".name > bdi").textContent),
    );
  }

  /** Returns the names in view that are selected. */
  selected() {
    return this.grid.evaluate((grid) =>
      [...grid.querySelectorAll(".list-body [aria-selected=true]")]
        .sort((one, other) => one.ariaRowIndex - other.ariaRowIndex)
        .map((row) => row.querySelector(".name > bdi").textContent),
    );
  }

  /** Returns the name at the cursor; null if it is not in view. */
  cursor() {
    return this.grid.evaluate((grid) => {
      const row = document.getElementById(grid.getAttribute("aria-activedescendant") ?? "");
      return row?.querySelector(".name > bdi").textContent ?? null;
    });
  }

  status() {
    return this.region.locator(".pane-status").textContent();
  }

  /** Returns `aria-sort` of each column. */
  sorted() {
    return this.grid.evaluate((grid) => [...grid.querySelectorAll("[role=columnheader]")].map((head) => head.getAttribute("aria-sort")));
  }

  async focus() {
    await this.grid.focus();
  }

  isFocused() {
    return this.grid.evaluate((grid) => document.activeElement === grid);
  }
}
