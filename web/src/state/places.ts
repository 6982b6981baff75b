import { signal } from '@preact/signals';
import { api } from '../api/client';
import type { Place } from '../api/types';
import { complain } from './messages';

export const places = signal<readonly Place[]>([]);
/** True once the places have been loaded. */
export const placesKnown = signal(false);

export async function loadPlaces(): Promise<void> {
  try {
    const { items } = await api.places();
    places.value = items;
    placesKnown.value = true;
  } catch (error) {
    complain(error);
  }
}

export function placeNamed(name: string | null): Place | undefined {
  return places.value.find((place) => place.name === name);
}
