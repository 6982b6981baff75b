// What a user has chosen, kept in this browser.

import { computed, effect, signal } from '@preact/signals';
import { decimal, formatCount, formatDuration, formatMoment, formatRate, formatSize } from '../model/format';
import { isLanguage, languageFor, plural, text, type Key, type Language, type PluralKey, type Values } from '../texts';

export type Theme = 'auto' | 'light' | 'dark';

/** Something kept; null where the browser keeps nothing or something else is there. */
export function kept(name: string): unknown {
  try {
    const value = localStorage.getItem(`longhaul.${name}`);
    return value === null ? null : JSON.parse(value);
  } catch {
    return null;
  }
}

export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`longhaul.${name}`, JSON.stringify(value));
  } catch {
    // It is chosen again next time.
  }
}

const keptLanguage = kept('language');
const keptTheme = kept('theme');

export const language = signal<Language>(isLanguage(keptLanguage) ? keptLanguage : languageFor(navigator.languages));
export const theme = signal<Theme>(keptTheme === 'light' || keptTheme === 'dark' ? keptTheme : 'auto');

effect(() => {
  document.documentElement.lang = language.value;
});

effect(() => {
  if (theme.value === 'auto') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
});

export function chooseLanguage(value: string): void {
  if (!isLanguage(value)) return;
  language.value = value;
  keep('language', value);
}

export function chooseTheme(value: string): void {
  theme.value = value === 'light' || value === 'dark' ? value : 'auto';
  keep('theme', theme.value);
}

/** The chosen language as it is used where the user is, for dates and figures. */
const locale = computed(() => {
  const local = navigator.languages.find((tag) => languageFor([tag]) === language.value && tag.startsWith(language.value));
  try {
    // Browsers name languages here that they do not know there (`en-US@posix`).
    return Intl.getCanonicalLocales(local)[0] ?? language.value;
  } catch {
    return language.value;
  }
});

/** Texts and figures in the chosen language; components that call these are drawn again when it changes. */
export const t = (key: Key, values?: Values): string => text(language.value, key, values);
export const tn = (key: PluralKey, count: number, values?: Values): string =>
  plural(language.value, key, count, { number: formatCount(count, locale.value), ...values });
export const size = (bytes: number): string => formatSize(bytes, locale.value);
export const rate = (bps: number): string => formatRate(bps, locale.value);
export const count = (value: number): string => formatCount(value, locale.value);
export const moment = (value: string | null | undefined, seconds = false): string =>
  formatMoment(value, locale.value, seconds);
/** A time that has passed: short ones with a digit behind the point. */
export const duration = (seconds: number): string =>
  seconds < 9.95 ? `${decimal(seconds, 1, locale.value)} s` : formatDuration(seconds);
/** A time of day, from seconds since the Unix epoch. */
export const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString(locale.value);
