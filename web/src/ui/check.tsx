import type { ComponentChildren } from 'preact';

interface Props {
  checked: boolean;
  onCheck: (checked: boolean) => void;
  children: ComponentChildren;
}

/** Checkbox with its label. */
export function Check({ checked, onCheck, children }: Props) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={checked}
        onChange={(event) => { onCheck(event.currentTarget.checked); }}
      />
      {children}
    </label>
  );
}
