// The page of a campaign: static, but for the buttons that copy its commands.
"use strict";

floodmarkCopying();
document.documentElement.dataset.ready = "yes";
