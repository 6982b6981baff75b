// Messages to the user.

import { signal } from '@preact/signals';
import { ApiError } from '../api/client';
import { display } from '../model/display';
import { t } from './settings';

export interface Message {
  id: number;
  text: string;
  error: boolean;
}

const MAX_MESSAGES = 5;
const NOTICE_MS = 6000;

export const messages = signal<readonly Message[]>([]);
let last = 0;

export function dismiss(id: number): void {
  messages.value = messages.value.filter((message) => message.id !== id);
}

function say(text: string, error: boolean): void {
  last += 1;
  const id = last;
  messages.value = [...messages.value, { id, text, error }].slice(-MAX_MESSAGES);
  // Errors stay until they are dismissed.
  if (!error) window.setTimeout(() => { dismiss(id); }, NOTICE_MS);
}

/** Shows a notice of success. */
export function notify(text: string): void {
  say(text, false);
}

/** Returns an error as one line, with invisible characters escaped. */
export function errorText(error: unknown): string {
  if (error instanceof ApiError) return error.status === 0 ? t('error.away') : display(error.detail);
  return display(String(error));
}

/** Shows an error. */
export function complain(error: unknown): void {
  // Without a session the whole page shows it.
  if (error instanceof ApiError && error.status === 401) return;
  say(errorText(error), true);
}
