// The open dialog, if any, and its data.

import { signal } from '@preact/signals';
import { copyFault } from '../model/location';
import { complain } from './messages';
import { other, panes, type Pane } from './pane';
import { count, t } from './settings';

/** Maximum number of sources that the API accepts for one job. */
const MAX_SOURCES = 1000;

export type Dialog =
  | { kind: 'help' }
  | { kind: 'mkdir'; pane: Pane }
  | { kind: 'rename'; pane: Pane; name: string }
  | { kind: 'remove'; pane: Pane; names: string[] }
  | { kind: 'copy'; sources: string[]; into: string }
  | { kind: 'removePlace'; name: string };

export const dialog = signal<Dialog | null>(null);

export function closeDialog(): void {
  dialog.value = null;
}

export function askMkdir(pane: Pane): void {
  if (pane.root !== null) dialog.value = { kind: 'mkdir', pane };
}

export function askRename(pane: Pane): void {
  const name = pane.selection.value.cursor ?? pane.subject()[0];
  if (name !== undefined && pane.row(name)) dialog.value = { kind: 'rename', pane, name };
}

export function askRemove(pane: Pane): void {
  const names = pane.subject();
  if (names.length > 0) dialog.value = { kind: 'remove', pane, names };
}

/** Opens the dialog that copies the selection to the other pane, or into a directory in it. */
export function askCopy(from: Pane, directory?: string): void {
  const sources = from.subject().map((name) => from.location(name));
  if (sources.length === 0) return;
  const into = panes[other(from.side)].into(directory);
  if (into === null) {
    complain(t('copy.nowhere'));
    return;
  }
  const fault = copyFault(sources, into);
  if (fault !== null) complain(t(`copy.${fault}`));
  else if (sources.length > MAX_SOURCES) complain(t('copy.many', { limit: count(MAX_SOURCES) }));
  else dialog.value = { kind: 'copy', sources, into };
}
