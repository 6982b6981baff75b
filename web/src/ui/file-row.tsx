import type { Entry, EntryKind } from '../api/types';
import { display } from '../model/display';
import { moment, size, t } from '../state/settings';
import type { Key } from '../texts';
import { Name } from './name';

const SIGNS: Record<EntryKind, string> = { directory: '📁', file: '📄', symlink: '🔗', other: '⚙' };

const KINDS: Record<EntryKind, Key> = {
  directory: 'entry.directory',
  file: 'entry.file',
  symlink: 'entry.symlink',
  other: 'entry.special',
};

interface Props {
  id: string;
  entry: Entry;
  number: number;
  top: number;
  selected: boolean;
  cursor: boolean;
  target: boolean;
  onClick: (event: MouseEvent) => void;
  onOpen: () => void;
  onDragStart: (event: DragEvent) => void;
  onDragEnd: () => void;
  onDragEnter: () => void;
}

export function FileRow(props: Props) {
  const { entry } = props;
  const link = entry.target === null ? '' : ` → ${display(entry.target)}`;
  const classes = ['row', entry.kind, props.selected && 'selected', props.cursor && 'cursor', props.target && 'drop'];
  return (
    <div
      id={props.id}
      role="row"
      class={classes.filter(Boolean).join(' ')}
      // Through the style object: markup with a style attribute is refused by the policy.
      style={{ transform: `translateY(${String(props.top)}px)` }}
      aria-rowindex={props.number + 2}
      aria-selected={props.selected}
      draggable
      onClick={props.onClick}
      onDblClick={props.onOpen}
      onDragStart={props.onDragStart}
      onDragEnd={props.onDragEnd}
      onDragEnter={props.onDragEnter}
    >
      <div role="gridcell" class="cell name" title={display(entry.name) + link}>
        <span class="kind" role="img" aria-label={t(KINDS[entry.kind])}>
          {SIGNS[entry.kind]}
        </span>
        <Name text={entry.name} />
        {entry.target !== null && (
          <span class="link-target">
            {' → '}
            <Name text={entry.target} />
          </span>
        )}
      </div>
      <div role="gridcell" class="cell size">
        {entry.kind === 'file' ? size(entry.bytes) : ''}
      </div>
      <div role="gridcell" class="cell modified">
        {moment(entry.modified)}
      </div>
    </div>
  );
}
