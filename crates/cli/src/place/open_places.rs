//! Places that stay open while a command asks several questions.

use anyhow::{Result, anyhow};

use super::{Location, Place, PlaceOptions};

/// Places by their location. Each is opened when it is first needed.
pub struct OpenPlaces<'a> {
    options: &'a PlaceOptions,
    open: Vec<(Location, Place)>,
}

impl<'a> OpenPlaces<'a> {
    /// Creates it without an open place.
    pub fn new(options: &'a PlaceOptions) -> Self {
        Self {
            options,
            open: Vec::new(),
        }
    }

    /// Returns the place at a location.
    ///
    /// # Errors
    /// The place cannot be reached.
    pub async fn get(&mut self, location: &Location) -> Result<&mut Place> {
        let found = self.open.iter().position(|(open, _)| open == location);
        let index = match found {
            Some(index) => index,
            None => {
                let place = Place::open(location, self.options).await?;
                self.open.push((location.clone(), place));
                self.open.len() - 1
            }
        };
        let open = self.open.get_mut(index).map(|(_, place)| place);
        open.ok_or_else(|| anyhow!("the place is closed"))
    }

    /// Closes all places.
    pub async fn end(&mut self) {
        for (_, place) in self.open.drain(..) {
            place.end().await;
        }
    }
}
