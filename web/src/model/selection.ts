// Selected rows and cursor of a list. Rows are identified by name, because their numbers change
// while entries arrive.

export interface Selection {
  readonly names: ReadonlySet<string>;
  /** Row that keys act on. */
  readonly cursor: string | null;
  /** Start of the range that Shift extends. */
  readonly anchor: string | null;
}

export const NOTHING: Selection = { names: new Set(), cursor: null, anchor: null };

/** Names in the order shown. */
export type Names = readonly string[];

/** Effect of a click or key on the selection. */
export interface Modifiers {
  /** Extends the selection from the anchor. */
  range: boolean;
  /** Keeps the selection: a click toggles one row, a key only moves the cursor. */
  keep: boolean;
}

function between(names: Names, from: string | null, to: string): Set<string> {
  const end = names.indexOf(to);
  const begin = from === null ? -1 : names.indexOf(from);
  if (end < 0) return new Set();
  if (begin < 0) return new Set([to]);
  return new Set(names.slice(Math.min(begin, end), Math.max(begin, end) + 1));
}

/** Applies a click on a row. */
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

/** Toggles the row at the cursor. */
export function toggle(selection: Selection): Selection {
  const { cursor } = selection;
  if (cursor === null) return selection;
  const names = new Set(selection.names);
  if (!names.delete(cursor)) names.add(cursor);
  return { names, cursor, anchor: cursor };
}

/** Moves the cursor to a row number, clamped to the list. */
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

/** Moves the cursor by rows. Without a cursor, it goes to the first row. */
export function moveBy(selection: Selection, names: Names, rows: number, how: Modifiers): Selection {
  const at = selection.cursor === null ? -1 : names.indexOf(selection.cursor);
  return moveTo(selection, names, at < 0 ? 0 : at + rows, how);
}

export function selectAll(selection: Selection, names: Names): Selection {
  return { ...selection, names: new Set(names), cursor: selection.cursor ?? names[0] ?? null };
}

/**
 * Returns the rows that an action applies to: the selected rows shown, or else the row at the
 * cursor.
 */
export function subject(selection: Selection, names: Names): string[] {
  const selected = names.filter((name) => selection.names.has(name));
  if (selected.length > 0) return selected;
  return selection.cursor !== null && names.includes(selection.cursor) ? [selection.cursor] : [];
}
