import type { SortKey } from '../model/listing';
import { moveBy, moveTo, selectAll, toggle, NOTHING } from '../model/selection';
import { askCopy, askMkdir, askRemove, askRename } from '../state/dialogs';
import type { Pane } from '../state/pane';

const SORT_KEYS: Readonly<Record<string, SortKey>> = { '1': 'name', '2': 'size', '3': 'modified' };

interface ListContext {
  /** Number of rows that Page Up and Page Down move by. */
  page: number;
  onOther: () => void;
  /** Moves the focus past the lists, which Tab does not do. */
  onPast: () => void;
}

/** Handles keys in a list. Others are left to the browser. */
export function onListKey(event: KeyboardEvent, pane: Pane, { page, onOther, onPast }: ListContext): void {
  // Buttons in the header of the list handle their own keys.
  if (event.target !== event.currentTarget || event.altKey || event.isComposing) return;
  const selection = pane.selection.value;
  const names = pane.names.value;
  const keep = event.ctrlKey || event.metaKey;
  const how = { range: event.shiftKey, keep };
  const by = (rows: number): void => {
    pane.selection.value = moveBy(selection, names, rows, how);
  };
  const to = (row: number): void => {
    pane.selection.value = moveTo(selection, names, row, how);
  };
  const plain = !keep && !event.shiftKey;
  switch (event.key) {
    case 'ArrowUp':
      by(-1);
      break;
    case 'ArrowDown':
      by(1);
      break;
    case 'PageUp':
      by(-page);
      break;
    case 'PageDown':
      by(page);
      break;
    case 'Home':
      to(0);
      break;
    case 'End':
      to(names.length - 1);
      break;
    case ' ':
      if (event.shiftKey) by(0);
      else pane.selection.value = toggle(selection);
      break;
    case 'a':
    case 'A':
      if (!keep || event.shiftKey) return;
      pane.selection.value = selectAll(selection, names);
      break;
    case 'Escape':
      pane.selection.value = { ...NOTHING, cursor: selection.cursor };
      break;
    case 'Enter':
      if (selection.cursor !== null) pane.enter(selection.cursor);
      break;
    case 'Backspace':
      pane.up();
      break;
    case 'Tab':
      // Shift+Tab leaves the list as usual.
      if (!plain) return;
      onOther();
      break;
    case 'F6':
      onPast();
      break;
    case '/':
      document.getElementById(`filter-${pane.side}`)?.focus();
      break;
    case '1':
    case '2':
    case '3': {
      // Tab does not reach the headings, because they are in the list.
      const key = SORT_KEYS[event.key];
      if (!plain || key === undefined) return;
      pane.sortBy(key);
      break;
    }
    case 'F2':
      askRename(pane);
      break;
    case 'F5':
      // With Ctrl or Shift it reloads the page as usual.
      if (!plain) return;
      askCopy(pane);
      break;
    case 'F7':
      askMkdir(pane);
      break;
    case 'Delete':
      askRemove(pane);
      break;
    default:
      return;
  }
  event.preventDefault();
}
