import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { closeDialog } from '../state/dialogs';
import { t } from '../state/settings';

interface Props {
  title: string;
  /** What the button that goes on says; without it there is only one that closes. */
  action?: string;
  danger?: boolean;
  busy?: boolean;
  onAccept?: () => void;
  children: ComponentChildren;
}

/** A dialog. The browser keeps the focus in it, and Escape closes it. */
export function Modal({ title, action, danger = false, busy = false, onAccept, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const opened = element.current;
    opened?.showModal();
    return () => {
      // While it is open as a modal one, nothing outside it takes the focus.
      opened?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        // Removed by drawing without it, not by the browser behind the page's back.
        event.preventDefault();
        closeDialog();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (busy) return;
          if (onAccept) onAccept();
          else closeDialog();
        }}
      >
        <h2 id="dialog-title">{title}</h2>
        {children}
        <div class="buttons">
          {action !== undefined && (
            <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy}>
              {action}
            </button>
          )}
          <button type={action === undefined ? 'submit' : 'button'} onClick={closeDialog}>
            {action === undefined ? t('button.close') : t('button.cancel')}
          </button>
        </div>
      </form>
    </dialog>
  );
}
