import type { Entry, EntryKind } from '../api/types';
import { display } from '../model/display';
import { moment, size, t } from '../state/settings';
import type { Key } from '../texts';
import { Name } from './name';

/** SVG outlines of the icons, in a square of 16. */
const ICONS: Record<EntryKind, string> = {
  directory: 'M1.5 3.5h5l1.5 2h6.5v8h-13z',
  file: 'M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3',
  symlink: 'M3 13c0-5 3-7 9-7M8.5 2.5 12 6l-3.5 3.5',
  other: 'M8 2.5 13.5 8 8 13.5 2.5 8z',
};

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
      // Set as a style object, because the content security policy refuses style attributes in
      // markup.
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
        <svg class="kind" viewBox="0 0 16 16" role="img" aria-label={t(KINDS[entry.kind])}>
          <path d={ICONS[entry.kind]} />
        </svg>
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
