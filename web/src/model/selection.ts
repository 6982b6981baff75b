// Which rows of a list are selected, and where its cursor is. Rows are known by name: their numbers change while entries still come in.

export interface Selection {
  readonly names: ReadonlySet<string>;
  /** The row that keys act on. */
  readonly cursor: string | null;
  /** Where a range that Shift extends begins. */
  readonly anchor: string | null;
}

export const NOTHING: Selection = { names: new Set(), cursor: null, anchor: null };

/** The names in the order they are shown. */
export type Names = readonly string[];

/** How a click or a key changes what is selected. */
export interface Modifiers {
  /** Extends from the anchor. */
  range: boolean;
  /** Leaves what is selected as it is: a click adds or takes away one, a key only moves the cursor. */
  keep: boolean;
}

function between(names: Names, from: string | null, to: string): Set<string> {
  const end = names.indexOf(to);
  const begin = from === null ? -1 : names.indexOf(from);
  if (end < 0) return new Set();
  if (begin < 0) return new Set([to]);
  return new Set(names.slice(Math.min(begin, end), Math.max(begin, end) + 1));
}

/** A click on a row. */
export function click(selection: Selection, names: Names, name: string, how: Modifiers): Selection {
  if (how.range) {
    const anchor = selection.anchor ?? selection.cursor ?? name;
    const range = between(names, anchor, name);
    const kept = how.keep ? new Set([...selection.names, ...range]) : range;
    return { names: kept, cursor: name, anchor };
  }
  if (how.keep) return toggle({ ...selection, cursor: name });
  return { names: new Set([name]), cursor: name, anchor: name };
}

/** Selects the row of the cursor, or no longer. */
export function toggle(selection: Selection): Selection {
  const { cursor } = selection;
  if (cursor === null) return selection;
  const names = new Set(selection.names);
  if (!names.delete(cursor)) names.add(cursor);
  return { names, cursor, anchor: cursor };
}

/** Moves the cursor to the row of a number, or to the nearest there is. */
export function moveTo(selection: Selection, names: Names, row: number, how: Modifiers): Selection {
  const name = names[Math.max(0, Math.min(names.length - 1, row))];
  if (name === undefined) return selection;
  if (how.range) {
    const anchor = selection.anchor ?? selection.cursor ?? name;
    return { names: between(names, anchor, name), cursor: name, anchor };
  }
  if (how.keep) return { ...selection, cursor: name };
  return { names: new Set([name]), cursor: name, anchor: name };
}

/** Moves the cursor by rows; from nowhere it goes to the first. */
export function moveBy(selection: Selection, names: Names, rows: number, how: Modifiers): Selection {
  const at = selection.cursor === null ? -1 : names.indexOf(selection.cursor);
  return moveTo(selection, names, at < 0 ? 0 : at + rows, how);
}

export function selectAll(selection: Selection, names: Names): Selection {
  return { ...selection, names: new Set(names), cursor: selection.cursor ?? names[0] ?? null };
}

/** What an action is about: the rows that are selected and shown, in their order; else the one of the cursor. */
export function subject(selection: Selection, names: Names): string[] {
  const selected = names.filter((name) => selection.names.has(name));
  if (selected.length > 0) return selected;
  return selection.cursor !== null && names.includes(selection.cursor) ? [selection.cursor] : [];
}
