import type { Key } from '../texts';
import { t } from '../state/settings';
import { Modal } from './modal';

const KEYS: readonly (readonly [string, Key])[] = [
  ['↑ ↓ Home End PageUp PageDown', 'help.move'],
  ['Ctrl ↑ ↓', 'help.keep'],
  ['Shift ↑ ↓', 'help.range'],
  ['Space', 'help.toggle'],
  ['Ctrl A', 'help.all'],
  ['Esc', 'help.none'],
  ['Enter', 'help.enter'],
  ['Backspace', 'help.up'],
  ['/', 'help.filter'],
  ['1 2 3', 'help.sort'],
  ['Tab', 'help.tab'],
  ['Shift Tab', 'help.before'],
  ['F6', 'help.after'],
  ['F2', 'pane.rename'],
  ['F5', 'pane.copy'],
  ['F7', 'pane.mkdir'],
  ['Del', 'pane.remove'],
];

export function Help() {
  return (
    <Modal title={t('help.title')}>
      <dl class="keys">
        {KEYS.map(([keys, key]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{t(key)}</dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}
