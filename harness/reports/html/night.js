// The page of a night: it stands as it was written; its commands are copied by a click.
"use strict";

floodmarkCopying();
document.documentElement.dataset.ready = "yes";
