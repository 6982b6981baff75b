// Which rows of a long list are in view. All have the same height, so this is arithmetic.

export interface Window {
  /** First row to draw. */
  start: number;
  /** Behind the last row to draw. */
  end: number;
}

/** Rows to draw, with some above and below so that scrolling by a little draws nothing new. */
export function windowOf(scrollTop: number, height: number, rowHeight: number, rows: number, margin = 8): Window {
  const first = Math.floor(Math.max(0, scrollTop) / rowHeight);
  const last = Math.ceil((Math.max(0, scrollTop) + Math.max(0, height)) / rowHeight);
  const end = Math.min(rows, last + margin);
  return { start: Math.max(0, Math.min(first - margin, end)), end };
}

/** Where to scroll to so that a row is in view, as little as needed; `covered` is what a header hides at the top. */
export function scrollTo(row: number, scrollTop: number, height: number, rowHeight: number, covered = 0): number {
  const top = row * rowHeight;
  const visible = Math.max(rowHeight, height - covered);
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + visible) return top + rowHeight - visible;
  return scrollTop;
}

/** Rows that a page key moves by. */
export function rowsPerPage(height: number, rowHeight: number): number {
  return Math.max(1, Math.floor(height / rowHeight) - 1);
}
