// Computes the visible rows of a long list. All rows have the same height.

export interface Window {
  /** First row to draw. */
  start: number;
  /** Row after the last one to draw. */
  end: number;
}

/** Returns the rows to draw, with a margin so that scrolling a little draws nothing new. */
export function windowOf(scrollTop: number, height: number, rowHeight: number, rows: number, margin = 8): Window {
  const first = Math.floor(Math.max(0, scrollTop) / rowHeight);
  const last = Math.ceil((Math.max(0, scrollTop) + Math.max(0, height)) / rowHeight);
  const end = Math.min(rows, last + margin);
  return { start: Math.max(0, Math.min(first - margin, end)), end };
}

/**
 * Returns the nearest scroll position that shows a row. A header hides `covered` pixels at the top.
 */
export function scrollTo(row: number, scrollTop: number, height: number, rowHeight: number, covered = 0): number {
  const top = row * rowHeight;
  const visible = Math.max(rowHeight, height - covered);
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + visible) return top + rowHeight - visible;
  return scrollTop;
}

/** Returns the number of rows that Page Up and Page Down move by. */
export function rowsPerPage(height: number, rowHeight: number): number {
  return Math.max(1, Math.floor(height / rowHeight) - 1);
}
